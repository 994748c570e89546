// Package recipetest is what the tests of recipes share: a World, in which a test of one recipe runs, a Listener to
// what a recipe yields, and a Storm, which makes trouble for clients that use one while Claims count who holds what.
package recipetest
