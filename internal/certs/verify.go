package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Bounds of what the other end of a connection may show: to look at it takes time and memory, which a
// stranger must not have much of.
const (
	maxChain       = 6    // certificates
	maxRSABits     = 4096 // of their keys
	maxRSAExponent = 1<<16 + 1
	maxCurveBits   = 384 // a signature of P-384 takes four times as long to check as one of RSA with 4096 bits, and one of P-521 sixteen times
	maxParts       = 200 // names, extensions and the like of a certificate: one of 3 bytes takes 160 in memory, as long as the connection is open
)

// trust is whose certificates count: those that an authority has signed, and nobody has
// revoked.
type trust struct {
	authorities []*x509.Certificate // those of the file
	roots       []*x509.Certificate // those of them that nobody has revoked
	keys        map[string]struct{} // the same; by their keys
	revoked     map[revocation]struct{}
	overdue     *x509.RevocationList // the list that is to be replaced first; nil without lists
}

// revocation is one certificate that was revoked.
type revocation struct {
	issuer string // its name, in DER
	serial string
}

// Proof is why a certificate counts: the path from it to an authority.
type Proof struct {
	path []*x509.Certificate // the certificate first, the authority last
}

// Ends returns when the first certificate of the path ends.
func (p Proof) Ends() time.Time {
	end := p.path[0].NotAfter
	for _, c := range p.path[1:] {
		if c.NotAfter.Before(end) {
			end = c.NotAfter
		}
	}
	return end
}

// errNoCertificate says that the other end has shown nothing.
var errNoCertificate = errors.New("no certificate was shown")

// verify checks that a chain, the other end's own certificate first, leads to an authority, for a use at a time. host is
// the name that the certificate must be for, if it is not empty.
func (t trust) verify(chain []*x509.Certificate, use x509.ExtKeyUsage, host string, now time.Time) (Proof, error) {
	if len(chain) == 0 {
		return Proof{}, errNoCertificate
	}
	if err := checkEffort(chain); err != nil {
		return Proof{}, err
	}
	if len(t.authorities) == 0 {
		return Proof{}, errors.New("there are no authorities")
	}
	doesNotCount := func(err error) (Proof, error) {
		return Proof{}, fmt.Errorf("the certificate of %s does not count: %w", subject(chain[0]), clipped{err})
	}
	between, roots := t.lead(chain)
	if len(roots) == 0 {
		return doesNotCount(x509.UnknownAuthorityError{Cert: chain[0]})
	}
	paths, err := chain[0].Verify(x509.VerifyOptions{
		//mutant: Roots: poolOf(roots), Intermediates: poolOf(between),  CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{use}, //by TestHandshake of ./internal/certs
		//mutant: Roots: poolOf(roots), Intermediates: poolOf(between), DNSName: host, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}, //by TestCheck of ./internal/certs
		Roots: poolOf(roots), Intermediates: poolOf(between), DNSName: host, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{use},
	})
	if err != nil {
		return doesNotCount(err)
	}
	for _, path := range paths {
		//mutant: if true { //by TestCheck of ./internal/certs
		if err = t.checkRevoked(path); err == nil {
			return Proof{path: path}, nil
		}
	}
	return Proof{}, err
}

func poolOf(list []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range list {
		pool.AddCert(c)
	}
	return pool
}

// lead finds the first certificate of a chain that an authority has signed, and returns those between it and the other end's own, it
// included, and the authorities; none if there is no such certificate. A stranger's certificates cost next to nothing: a certificate that
// names no authority as its issuer is not looked at, no signature is checked by a key that a stranger has chosen, and at most maxChain are
// in all. Package x509 would try every certificate as the issuer of every other, a hundred times; it gets what an authority has signed, in
// which no issuer comes twice.
func (t trust) lead(chain []*x509.Certificate) (between, roots []*x509.Certificate) {
	checks := 0
	for i, c := range chain {
		twice := func(other *x509.Certificate) bool { return bytes.Equal(other.RawSubject, c.RawSubject) }
		if i > 0 && (!bytes.Equal(chain[i-1].RawIssuer, c.RawSubject) || slices.ContainsFunc(chain[1:i], twice)) {
			break
		}
		for _, a := range t.issuersOf(c) {
			if checks++; checks > maxChain { // those that were found count: an authority may have been renewed very often
				break
			}
			if c.CheckSignatureFrom(a) == nil {
				roots = append(roots, a)
			}
		}
		if len(roots) > 0 {
			return chain[1 : i+1], roots
		}
		if checks > maxChain {
			break
		}
	}
	return nil, nil
}

// issuersOf returns the authorities that a certificate names as its issuer: those with the key that it names, or else all of
// that name. Tools compute the names of keys in different ways.
func (t trust) issuersOf(c *x509.Certificate) (byKey []*x509.Certificate) {
	var byName []*x509.Certificate
	for _, a := range t.roots {
		if bytes.Equal(a.RawSubject, c.RawIssuer) {
			byName = append(byName, a)
			if bytes.Equal(a.SubjectKeyId, c.AuthorityKeyId) {
				byKey = append(byKey, a)
			}
		}
	}
	if len(byKey) > 0 {
		return byKey
	}
	return byName
}

// checkEffort refuses a chain that would take long to look at, or much memory to keep. It is quick itself.
func checkEffort(chain []*x509.Certificate) error {
	if len(chain) > maxChain {
		return fmt.Errorf("%w: %d, and at most %d are allowed", errLongChain, len(chain), maxChain)
	}
	for _, c := range chain {
		switch key := c.PublicKey.(type) {
		case *rsa.PublicKey:
			if key.N.BitLen() > maxRSABits || key.E > maxRSAExponent {
				return fmt.Errorf("the certificate of %s has an RSA key of %d bits with the exponent %d: at most %d and %d are allowed", subject(c), key.N.BitLen(), key.E, maxRSABits, maxRSAExponent)
			}
		case *ecdsa.PublicKey:
			if curve := key.Params(); curve.BitSize > maxCurveBits {
				return fmt.Errorf("the certificate of %s has a key of the curve %s: at most P-%d is allowed", subject(c), curve.Name, maxCurveBits)
			}
		}
		if n := partsOf(c); n > maxParts {
			return fmt.Errorf("the certificate of %s has %d names, extensions and the like: at most %d are allowed", subject(c), n, maxParts)
		}
	}
	return nil
}

// partsOf counts what a certificate has any number of.
func partsOf(c *x509.Certificate) int {
	return len(c.Extensions) + len(c.Subject.Names) + len(c.Issuer.Names) +
		len(c.DNSNames) + len(c.EmailAddresses) + len(c.IPAddresses) + len(c.URIs) +
		len(c.PermittedDNSDomains) + len(c.ExcludedDNSDomains) + len(c.PermittedIPRanges) + len(c.ExcludedIPRanges) +
		len(c.PermittedEmailAddresses) + len(c.ExcludedEmailAddresses) + len(c.PermittedURIDomains) + len(c.ExcludedURIDomains) +
		len(c.ExtKeyUsage) + len(c.UnknownExtKeyUsage) + len(c.Policies) + len(c.PolicyMappings) +
		len(c.CRLDistributionPoints) + len(c.OCSPServer) + len(c.IssuingCertificateURL)
}

// checkRevoked returns why a path from a certificate to an authority does not count any more.
func (t trust) checkRevoked(path []*x509.Certificate) error {
	for _, c := range path[:len(path)-1] {
		if t.isRevoked(c) {
			return fmt.Errorf("the certificate of %s was revoked", subject(c))
		}
	}
	return nil
}

func (t trust) isRevoked(c *x509.Certificate) bool {
	_, revoked := t.revoked[revocation{string(c.RawIssuer), c.SerialNumber.String()}]
	return revoked
}

// counts reports whether a path leads to an authority still, and nobody on it was revoked. It checks no
// signature again, as these do not change.
func (t trust) counts(p Proof) bool {
	last := p.path[len(p.path)-1]
	return slices.ContainsFunc(t.roots, func(a *x509.Certificate) bool { return replaces(a, last) }) && t.checkRevoked(p.path) == nil
}

// replaces reports whether the certificate of an authority signs what another one does: it is the same, or was renewed with the same name,
// key and limits.
func replaces(a, b *x509.Certificate) bool {
	return bytes.Equal(a.Raw, b.Raw) || bytes.Equal(a.RawSubject, b.RawSubject) && keyOf(a) == keyOf(b) && limitsOf(a) == limitsOf(b)
}

// limitsOf returns the extensions that say what the certificates of an authority are for, in their order: its basic constraints, key usage,
// name constraints and extended key usage (RFC 5280 §4.2.1).
func limitsOf(a *x509.Certificate) (limits string) {
	for _, e := range a.Extensions {
		if id := e.Id.String(); slices.Contains([]string{"2.5.29.15", "2.5.29.19", "2.5.29.30", "2.5.29.37"}, id) {
			limits += fmt.Sprintf("%s %t %x\n", id, e.Critical, e.Value)
		}
	}
	return limits
}

// addList adds the certificates of a revocation list, which one of the authorities must have signed. The list is about what any
// authority of its name has signed: the key may be another since. When an authority is renewed, its name may be written in another way, too
// (as UTF-8, which was a PrintableString).
func (t *trust) addList(der []byte) error {
	list, err := x509.ParseRevocationList(der)
	if err == nil {
		err = checkWhole(list)
	}
	if err != nil {
		return err
	}
	for _, a := range t.authorities {
		//mutant: if !bytes.Equal(a.RawSubject, list.RawIssuer) { //by TestOpenFaults of ./internal/certs
		if !bytes.Equal(a.RawSubject, list.RawIssuer) || list.CheckSignatureFrom(a) != nil {
			continue
		}
		for _, issuer := range t.namesOf(a) {
			for _, e := range list.RevokedCertificateEntries {
				t.revoked[revocation{issuer, e.SerialNumber.String()}] = struct{}{}
			}
		}
		if !list.NextUpdate.IsZero() && (t.overdue == nil || list.NextUpdate.Before(t.overdue.NextUpdate)) {
			t.overdue = list
		}
		return nil
	}
	return fmt.Errorf("the list of %q is signed by none of the certificate authorities", list.Issuer)
}

// checkWhole refuses a revocation list that does not name all that its issuer has revoked, or names what others have: read as one that
// does, it would let in who was revoked. Package x509 leaves extensions to its caller.
func checkWhole(list *x509.RevocationList) error {
	const deltaIndicator, certificateIssuer = "2.5.29.27", "2.5.29.29" // RFC 5280 §5.2.4 and §5.3.3
	for _, e := range list.Extensions {
		if e.Id.String() == deltaIndicator {
			return fmt.Errorf("the list of %q has changes alone (a delta list): whole ones are wanted", list.Issuer)
		}
	}
	for _, entry := range list.RevokedCertificateEntries {
		for _, e := range entry.Extensions {
			if e.Id.String() == certificateIssuer {
				return fmt.Errorf("the list of %q is about certificates of others (an indirect list): lists of the authorities themselves are wanted", list.Issuer)
			}
		}
	}
	return nil
}

// namesOf returns the name of an authority in DER, in each way in which it is written by a certificate with its key.
func (t *trust) namesOf(one *x509.Certificate) (names []string) {
	for _, a := range t.authorities {
		if name := string(a.RawSubject); keyOf(a) == keyOf(one) && a.Subject.String() == one.Subject.String() && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// settle leaves those authorities in place that nobody has revoked, when all lists have been read. One that has signed itself
// is taken back by taking it out of its file. The one that ends last comes first: lead does not get to all certificates of an
// authority that was renewed often, and those that have ended are of no use.
func (t *trust) settle() {
	for _, a := range t.authorities {
		//mutant: if bytes.Equal(a.RawSubject, a.RawIssuer) || true { //by TestRevokedIntermediate of ./internal/certs
		if bytes.Equal(a.RawSubject, a.RawIssuer) || !t.isRevoked(a) {
			t.roots = append(t.roots, a)
			t.keys[keyOf(a)] = struct{}{}
		}
	}
	slices.SortStableFunc(t.roots, func(a, b *x509.Certificate) int { return b.NotAfter.Compare(a.NotAfter) })
}

// warning is what somebody should see to soon; "" if there is nothing.
func (t trust) warning(port string, now time.Time) string {
	if t.overdue != nil && now.After(t.overdue.NextUpdate) {
		return fmt.Sprintf("a revocation list in %s-crl was to be replaced by %s: who was revoked since is let in", port, t.overdue.NextUpdate.UTC().Format(time.DateOnly))
	}
	if last := t.lastAuthority(); last != nil {
		return endWarning("the authority", port+"-ca", last, now)
	}
	return ""
}

// lastAuthority returns the authority that ends last; nil without any.
func (t trust) lastAuthority() (last *x509.Certificate) {
	for _, a := range t.authorities {
		if last == nil || a.NotAfter.After(last.NotAfter) {
			last = a
		}
	}
	return last
}

// soon is how long before its end a certificate is warned of; one that lasts days or hours, in the last third.
const soon = 14 * 24 * time.Hour

func endWarning(what, key string, c *x509.Certificate, now time.Time) string {
	on := c.NotAfter.UTC().Format(time.DateOnly)
	switch left := c.NotAfter.Sub(now); {
	case left <= 0:
		return fmt.Sprintf("%s in %s has expired, on %s: put a new one in its place", what, key, on)
	case left < min(soon, c.NotAfter.Sub(c.NotBefore)/3):
		return fmt.Sprintf("%s in %s expires on %s: put a new one in its place", what, key, on)
	}
	return ""
}

// maxText bounds what is said of a certificate, in bytes: the other end chooses what is in it.
const maxText = 200

// clipped is an error whose text is not longer than that.
type clipped struct{ error }

func (c clipped) Error() string { return clip(c.error.Error()) }

func (c clipped) Unwrap() error { return c.error }

func clip(text string) string {
	if len(text) > maxText {
		return text[:maxText] + "…"
	}
	return text
}
