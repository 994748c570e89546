//go:build !race

package master

// slowdown is that of a build without the race detector: none.
const slowdown = 1
