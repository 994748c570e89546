package certs

import (
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"net/url"
	"regexp"
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
	uris, err := urisOf(cert)
	if err != nil {
		return Replica{}, err
	}
	var found []Replica
	for _, text := range uris {
		rest, ok := strings.CutPrefix(text, replicaScheme+"://")
		cell, id, named := strings.Cut(rest, "/replica/")
		if r := (Replica{Cell: cell, ID: id}); ok && named && id != "" && r.URI().String() == text {
			found = append(found, r)
		}
	}
	if len(found) != 1 {
		return Replica{}, fmt.Errorf("the certificate of %s names %d replicas: one URI like %v is wanted (chubbyd certs replica)", subject(cert), len(found), Replica{Cell: "CELL", ID: "ID"}.URI())
	}
	return found[0], nil
}

// How SPIFFE IDs and names of hosts are written. A name that is written otherwise is none: two that differ must not be read as
// one, nor one of a kind as one of the other.
var (
	spiffeID = regexp.MustCompile(`^spiffe://[a-z0-9._-]{1,255}(/[A-Za-z0-9._-]+)+$`)
	hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]*)(\.[A-Za-z0-9_-]+)*$`)
)

// PrincipalOf returns the principal that a client's certificate names: its SPIFFE ID, the URI
// spiffe://DOMAIN/PATH; or, if it has none, its DNS name, of which it has one. A certificate
// that names a replica names no principal.
func PrincipalOf(cert *x509.Certificate) (string, error) {
	uris, err := urisOf(cert)
	if err != nil {
		return "", err
	}
	var ids []string
	for _, text := range uris {
		scheme, _, _ := strings.Cut(text, ":")
		switch strings.ToLower(scheme) {
		//mutant: case "none": //by TestNames of ./internal/certs
		case replicaScheme:
			return "", fmt.Errorf("the certificate of %s is that of a replica, and not of a client", subject(cert))
		case "spiffe":
			if !spiffeID.MatchString(text) {
				return "", fmt.Errorf("the certificate of %s has the URI %q, which is no SPIFFE ID like spiffe://example.org/billing", subject(cert), clip(text))
			}
			ids = append(ids, text)
		}
	}
	switch {
	case len(ids) == 1:
		return ids[0], nil
	case len(ids) > 1:
		return "", fmt.Errorf("the certificate of %s has %d SPIFFE IDs: one is wanted", subject(cert), len(ids))
	case len(cert.DNSNames) != 1:
		return "", fmt.Errorf("the certificate of %s has no SPIFFE ID and %d DNS names: one of either is wanted to name a principal", subject(cert), len(cert.DNSNames))
	case !hostName.MatchString(cert.DNSNames[0]):
		return "", fmt.Errorf("the certificate of %s has the DNS name %q, which cannot be a principal: want letters, digits, '-', '_' and '.'", subject(cert), clip(cert.DNSNames[0]))
	}
	return cert.DNSNames[0], nil
}

// urisOf returns the URIs of a certificate as they are written there: package x509 has parsed them, and
// different texts are equal then.
func urisOf(cert *x509.Certificate) (uris []string, err error) {
	alternatives := asn1.ObjectIdentifier{2, 5, 29, 17}
	const uri = 6 // the tag of a uniformResourceIdentifier (RFC 5280 §4.2.1.6)
	for _, e := range cert.Extensions {
		if !e.Id.Equal(alternatives) {
			continue
		}
		var names asn1.RawValue
		if _, err := asn1.Unmarshal(e.Value, &names); err != nil {
			return nil, err
		}
		for rest := names.Bytes; len(rest) > 0; {
			var name asn1.RawValue
			if rest, err = asn1.Unmarshal(rest, &name); err != nil {
				return nil, err
			}
			if name.Class == asn1.ClassContextSpecific && name.Tag == uri {
				uris = append(uris, string(name.Bytes))
			}
		}
	}
	if len(uris) != len(cert.URIs) {
		return nil, errors.New("the certificate's URIs cannot be read")
	}
	return uris, nil
}

// subject names a certificate for people.
func subject(cert *x509.Certificate) string {
	serial := clip(fmt.Sprintf("%x", cert.SerialNumber))
	if text := cert.Subject.String(); text != "" {
		return fmt.Sprintf("%q (serial number %s)", clip(text), serial)
	}
	return "serial number " + serial
}
