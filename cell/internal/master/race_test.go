//go:build race

package master

// slowdown is about how much longer the race detector makes work on maps and channels take.
const slowdown = 5
