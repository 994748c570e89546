// Package certs has the certificates of a cell: it reads them from files, again when the
// files have changed (files.go); says whether a certificate of the other end counts, and
// whom it names (verify.go, connections.go); and makes a working set (authority.go).
//
// There are two kinds, each with a certificate authority of its own. Between replicas both
// ends show who they are: a replica's certificate names its cell and its ID. To clients a
// replica shows a server's certificate, for the host that they have dialled, and a client's
// names its principal, which is what access control lists are about.
//
// A certificate's times are compared with the wall clock, as everywhere. Nothing else that
// the cell promises depends on it.
package certs
