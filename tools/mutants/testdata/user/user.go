// Package user uses package marks, and has the test that notices one of its mutants. Another of its tests fails.
package user

func broken() bool { return true }

func unused() bool { return false }
