// Package identity says which replica of which cell a data directory is, and
// refuses to be another one: a replica whose directory is empty, damaged, or of
// another replica must not run, or it would break promises that were given under
// its ID (docs/adr/0009-bootstrap-and-identity.md).
//
// The rule it upholds: a replica is its ID and its incarnation together, and no ID is
// used twice in the life of a cell: a roster only grows, and marks those that have left. Every error of a replica that must not
// run has ErrRefused in its chain.
//
// Packages disk, which stores an identity, and peer, which shows it to other
// replicas, use it, and so does package cell. It holds values: it has no
// goroutine, no mutex and no clock, and only RandomID is not determined by its
// arguments.
package identity
