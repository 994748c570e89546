//go:build race

package cell

// slowdown is about how much longer the race detector makes work on maps and
// channels take.
const slowdown = 5
