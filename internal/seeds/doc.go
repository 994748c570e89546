// Package seeds gives fuzz tests the inputs that fuzzing has found, from one file for each test.
//
// testdata/FuzzX.seeds has one input a line. Its values are separated by tabs, and written as the go command writes them into
// testdata/fuzz/FuzzX when it finds a failure: who keeps such an input joins its lines, without the first, and puts them at the end.
package seeds
