// Package testbed is what the tests of a replica and of its rooms stand on: a
// clock and waiting for virtual time, a state machine of words, what was logged,
// and the checks of tests.
//
// The rule it upholds: everything in it works in a testing/synctest bubble. Only
// tests import it; tests of whole cells outside of package cell use celltest.
//
// It starts no goroutine. Each type guards its fields with one mutex, which is
// held for nothing else.
package testbed
