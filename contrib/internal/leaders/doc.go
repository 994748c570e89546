// Package leaders has what the tests of leader elections share, of client-go's and of controller-runtime's: a World
// in virtual time, whose leaders must not overlap, and a Crowd of candidates that are processes.
package leaders
