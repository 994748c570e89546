// Package chubbypb is the protocol of Chubby as generated from chubby.proto,
// and the one table that carries errors across it: Status on the way out,
// Error on the way in. Nothing else in the project translates errors.
package chubbypb
