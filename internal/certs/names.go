package certs

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"strings"
)

// replicaScheme is the scheme of the URI in a replica's certificate:
// chubby://CELL/replica/ID.
const replicaScheme = "chubby"

// Replica is a replica as its certificate names it.
type Replica struct{ Cell, ID string }

// URI returns the URI that the certificate of a replica has.
func (r Replica) URI() *url.URL {
	return &url.URL{Scheme: replicaScheme, Host: r.Cell, Path: "/replica/" + r.ID}
}

// ReplicaOf returns the replica that a certificate names.
func ReplicaOf(cert *x509.Certificate) (Replica, error) {
	var found []Replica
	for _, u := range cert.URIs {
		if u.Scheme != replicaScheme {
			continue
		}
		id, ok := strings.CutPrefix(u.Path, "/replica/")
		if r := (Replica{Cell: u.Host, ID: id}); ok && id != "" && r.URI().String() == u.String() {
			found = append(found, r)
		}
	}
	if len(found) != 1 {
		return Replica{}, fmt.Errorf("the certificate of %s names %d replicas: one URI like %v is wanted (chubbyd certs replica)", subject(cert), len(found), Replica{Cell: "CELL", ID: "ID"}.URI())
	}
	return found[0], nil
}

// PrincipalOf returns the principal that a client's certificate names: its SPIFFE ID, the URI
// spiffe://DOMAIN/PATH; or, if it has none, its DNS name, of which it has one. A certificate
// that names a replica names no principal.
func PrincipalOf(cert *x509.Certificate) (string, error) {
	var ids []string
	for _, u := range cert.URIs {
		switch u.Scheme {
		case replicaScheme:
			return "", fmt.Errorf("the certificate of %s is that of a replica, and not of a client", subject(cert))
		case "spiffe":
			ids = append(ids, u.String())
		}
	}
	switch {
	case len(ids) == 1:
		return ids[0], nil
	case len(ids) > 1:
		return "", fmt.Errorf("the certificate of %s has %d SPIFFE IDs: one is wanted", subject(cert), len(ids))
	case len(cert.DNSNames) == 1:
		return cert.DNSNames[0], nil
	}
	return "", fmt.Errorf("the certificate of %s has no SPIFFE ID and %d DNS names: one of either is wanted to name a principal", subject(cert), len(cert.DNSNames))
}

// subject names a certificate for people.
func subject(cert *x509.Certificate) string {
	if text := cert.Subject.String(); text != "" {
		return fmt.Sprintf("%q (serial number %x)", text, cert.SerialNumber)
	}
	return fmt.Sprintf("serial number %x", cert.SerialNumber)
}
