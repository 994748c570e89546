// Package sizing adds up what a cell needs, from what is to be in it and done with it, and from what each of that costs. The costs were
// measured (make sizing), and are those of docs/sizing.md.
package sizing
