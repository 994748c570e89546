// Package user uses package marks, and has the test that notices one of its mutants.
package user
