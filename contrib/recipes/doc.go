// Package recipes has recipes that fewer programs need than those of package client/recipe. Like those, they are made of a few
// calls of the exported client, and what they leave in a cell are files and locks that chubbyctl shows. What package
// client/recipe says of sessions, of holders that die and of concurrency holds here too.
//
//   - Queue: items of work, each of which one worker at a time has until it is done.
//   - Healthy: something is announced while a check of the program passes.
//   - Barrier: it holds up those who come to it, until it is lifted.
//   - DoubleBarrier: processes begin together and end together, round after round.
//   - Locked: a function under a lock, which may call others that take it.
package recipes
