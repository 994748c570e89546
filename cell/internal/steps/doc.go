// Package steps is what a master says of a call that is traced or slow: what it has waited for, and from when to when. The
// master says it, package wire logs it, and package cell makes spans of it; none knows another's words.
//
// The rule it upholds: a trace says nothing that the caller could not ask for, and who says it waits for nobody. It is values
// and one interface; what is in a Step is not changed once it was told.
package steps
