package tokens

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Config says which tokens count.
type Config struct {
	Keys      string // a file, or a URL that begins with https://
	KeysCA    string // a file with the authorities of the URL's server; empty: those of the system
	KeysToken string // a file with a token for that server; empty if it wants none
	Issuer    string // the claim iss that tokens must have
	Audience  string // what must be in their claim aud
	Claim     string // the claim that names the principal; empty: sub
}

// Check returns what is missing or wrong, key by key.
func (c Config) Check(fault func(key, text string)) {
	if c.Keys == "" {
		fault("token-keys", "is missing, and other settings of tokens are there: name a file, or a URL")
	}
	if scheme, _, is := strings.Cut(c.Keys, "://"); is {
		if u, err := url.Parse(c.Keys); scheme != "https" || err != nil || u.Host == "" {
			fault("token-keys", fmt.Sprintf("%q is no URL of https", c.Keys))
		}
	} else if c.KeysCA != "" || c.KeysToken != "" {
		fault("token-keys", "is a file, and token-keys-ca and token-keys-token are for a URL")
	}
	if c.Issuer == "" {
		fault("token-issuer", "is missing: whose tokens count? It is the claim iss in them")
	}
	if c.Audience == "" {
		fault("token-audience", "is missing: what must be in the claim aud of a token? Tokens for other services must not count here")
	}
}

// Token is what a token said that counted.
type Token struct {
	Principal string
	Expires   time.Time // from then on it does not count
	key       string    // print of the one that has signed it
}

// Store checks tokens. It is safe for concurrent use.
type Store struct {
	cfg  Config
	now  func() time.Time
	held atomic.Pointer[keySet] // nil while none could be read

	wake chan struct{} // has an element when somebody wants the keys to be read again

	mu   sync.Mutex    // guards what follows; not held while keys are read
	last time.Time     // when that was last tried, to the end
	next time.Time     // when a URL is to be asked again
	read string        // the text that was read last
	done chan struct{} // closed, and made anew, when keys were read or could not be
	err  error         // why they could not be read the last time
}

// Open reads the keys of a file. A URL is asked by the first Refresh; no token counts until one has
// succeeded.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s := newStore(cfg, wallNow)
	if s.cfg.isURL() {
		return s, nil
	}
	_, err := s.Refresh(ctx)
	return s, err
}

func newStore(cfg Config, now func() time.Time) *Store {
	if cfg.Claim == "" {
		cfg.Claim = "sub"
	}
	return &Store{cfg: cfg, now: now, wake: make(chan struct{}, 1), done: make(chan struct{}), err: errNotYet}
}

// Err returns why the keys could not be read the last time; nil if they could.
func (s *Store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Wanted has an element when Refresh is to be called, by the caller that does so from time to time.
func (s *Store) Wanted() <-chan struct{} { return s.wake }

// Refresh reads the keys again, if it is time, and reports whether they are others than before. It is called by
// one goroutine at a time.
func (s *Store) Refresh(ctx context.Context) (changed bool, err error) {
	now := s.now()
	s.mu.Lock()
	if s.cfg.isURL() && now.Before(s.next) {
		defer s.mu.Unlock()
		return false, s.err
	}
	s.next = now.Add(everyFetch)
	was := s.read
	s.mu.Unlock()
	text, err := s.cfg.read(ctx)
	var set *keySet
	if err == nil && string(text) != was {
		set, err = parseKeySet(text)
	}
	if err != nil {
		err = fmt.Errorf("read the keys of tokens, %s: %w", s.cfg.Keys, err)
	}
	if set != nil {
		s.held.Store(set)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = s.now()
	if s.err = err; err != nil {
		s.next = now.Add(betweenReads)
	} else {
		s.read = string(text)
	}
	close(s.done)
	s.done = make(chan struct{})
	return set != nil, err
}

// again waits until the keys have been read once more, if that was not done just now.
func (s *Store) again(ctx context.Context) {
	s.mu.Lock()
	pause := betweenReads
	if !s.cfg.isURL() {
		pause = betweenFileReads
	}
	//mutant: if s.now().Sub(s.last) < 0*pause { //by TestUnknownKeysAreLookedFor of ./internal/tokens
	if s.now().Sub(s.last) < pause {
		s.mu.Unlock()
		return
	}
	s.next = time.Time{}
	done := s.done
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default: // somebody has asked before
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// MaxToken bounds a token, in bytes.
const MaxToken = 16 << 10

// leeway is how far the clocks of an issuer and of this machine may be apart.
const leeway = 30 * time.Second

// algorithms are those whose signatures count: with a public key, all of them.
func algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{
		jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
	}
}

// Verify returns what a token says, or why it does not count. The error has nothing of the token's secret. It waits
// for the keys to be read again, at most until ctx ends, if the token was signed with one that is not known.
func (s *Store) Verify(ctx context.Context, raw string) (Token, error) {
	if len(raw) > MaxToken {
		return Token{}, fmt.Errorf("the token has %d bytes, and at most %d are allowed", len(raw), MaxToken)
	}
	if strings.ContainsFunc(raw, isForeign) { // package base64 passes over ends of lines
		return Token{}, errors.New("this is no JWT: it has a character that is none of base64url, and no dot")
	}
	parsed, err := jwt.ParseSigned(raw, algorithms())
	if err != nil {
		return Token{}, fmt.Errorf("this is no JWT whose signature could count: %w", err)
	}
	for _, name := range []jose.HeaderKey{"crit", "b64"} {
		if _, there := parsed.Headers[0].ExtraHeaders[name]; there {
			return Token{}, fmt.Errorf("the token's header has %s, and no extension of JWT is known here", name)
		}
	}
	token, err := s.verify(parsed)
	if errors.Is(err, errUnknownKey) {
		s.again(ctx)
		token, err = s.verify(parsed)
	}
	return token, err
}

// isForeign reports whether a character has no place in a compact JWT (RFC 7515, section 2).
func isForeign(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_' || r == '.')
}

var errNotYet = errors.New("they have not been read yet")

var errUnknownKey = errors.New("the token is signed with a key that is none of its issuer's")

// verify checks a token by the keys that are there.
func (s *Store) verify(parsed *jwt.JSONWebToken) (Token, error) {
	set := s.held.Load()
	if set == nil {
		return Token{}, fmt.Errorf("%w: the replica has no keys yet, and its log says why", errUnknownKey) // where they are, and what the network says, is for operators
	}
	var claims jwt.Claims
	var all map[string]any
	for _, i := range set.matching(parsed.Headers[0]) {
		if parsed.Claims(set.keys[i].Key, &claims, &all) != nil {
			continue
		}
		principal, err := s.check(claims, all)
		if err != nil {
			return Token{}, err
		}
		return Token{Principal: principal, Expires: claims.Expiry.Time().Add(leeway), key: set.prints[i]}, nil
	}
	return Token{}, errUnknownKey
}

// check checks what a token says whose signature counts, and returns the principal.
func (s *Store) check(claims jwt.Claims, all map[string]any) (string, error) {
	//mutant: if false { //by TestVerify of ./internal/tokens
	if claims.Expiry == nil {
		return "", errors.New("the token never expires (it has no claim exp), and such tokens do not count")
	}
	//mutant: err := claims.ValidateWithLeeway(jwt.Expected{AnyAudience: jwt.Audience{s.cfg.Audience}, Time: s.now()}, leeway) //by TestVerify of ./internal/tokens
	//mutant: err := claims.ValidateWithLeeway(jwt.Expected{Issuer: s.cfg.Issuer, Time: s.now()}, leeway) //by TestVerify of ./internal/tokens
	err := claims.ValidateWithLeeway(jwt.Expected{Issuer: s.cfg.Issuer, AnyAudience: jwt.Audience{s.cfg.Audience}, Time: s.now()}, leeway)
	switch {
	case errors.Is(err, jwt.ErrInvalidIssuer):
		return "", fmt.Errorf("the token is of the issuer %q, and this cell takes those of %q", claims.Issuer, s.cfg.Issuer)
	case errors.Is(err, jwt.ErrInvalidAudience):
		return "", fmt.Errorf("the token is for the audience %q, and this cell takes those for %q", []string(claims.Audience), s.cfg.Audience)
	case errors.Is(err, jwt.ErrExpired):
		return "", fmt.Errorf("the token has expired, at %s", claims.Expiry.Time().UTC().Format(time.RFC3339))
	case errors.Is(err, jwt.ErrNotValidYet), errors.Is(err, jwt.ErrIssuedInTheFuture):
		return "", errors.New("the token does not count yet: is a clock wrong?")
	case err != nil:
		return "", err
	}
	principal, _ := all[s.cfg.Claim].(string)
	if principal == "" {
		return "", fmt.Errorf("the token has no claim %q that names a principal", s.cfg.Claim)
	}
	if verified, there := all["email_verified"]; s.cfg.Claim == "email" && there && verified != true {
		return "", errors.New("the token's address is not verified (email_verified)")
	}
	return principal, nil
}

// Counts reports whether a token that was verified counts still: its time is not over, and its key not taken
// back.
func (s *Store) Counts(t Token) bool {
	return s.now().Before(t.Expires) && slices.Contains(s.held.Load().prints, t.key)
}

// ReadFile reads a token from a file. Space around it does not count.
func ReadFile(name string) (string, error) {
	text, err := readBounded(name, MaxToken)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("%s is empty: a token is wanted", name)
	}
	return token, nil
}
