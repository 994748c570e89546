// Package chubbypb is the protocol of Chubby as generated from chubby.proto,
// and what carries errors and records across it: Status on the way out, and
// Error on the way in; Message and Record, for the records of package api.
// Nothing else in the project translates errors, or what a cell lists.
package chubbypb
