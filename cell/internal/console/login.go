package console

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chubbylock/chubby/session"
)

const (
	loginTime   = time.Hour       // ends a login, even an active one
	maxLogins   = 256             // valid at a time; the oldest makes room
	maxOwn      = 8               // of these, of one principal
	verifyTime  = 5 * time.Second // for a token: this may read its issuer's keys
	loginBytes  = 24              // random bytes of a cookie
	maxLoginNow = 4               // tokens verified at a time
)

// login is the result of a browser's token. The token itself is not kept.
type login struct {
	hash      [sha256.Size]byte // of its cookie
	principal string
	counts    func() bool
	ends      session.Instant
}

// logins are only in memory: the replica forgets them when it stops.
type logins struct {
	clock     session.Clock
	verifying *places

	mu  sync.Mutex // guards all
	all []login    // the oldest first; some have ended
}

func newLogins(clock session.Clock) *logins {
	return &logins{clock: clock, verifying: newPlaces(maxLoginNow, maxLoginNow)}
}

// add begins a login, and returns its cookie.
func (ls *logins) add(principal string, counts func() bool) (cookie string) {
	raw := make([]byte, loginBytes)
	_, _ = rand.Read(raw) // it never fails
	cookie = base64.RawURLEncoding.EncodeToString(raw)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now, own := ls.clock(), 0
	for i, l := range slices.Backward(ls.all) {
		if l.principal == principal {
			own++
		}
		if l.ends <= now || l.principal == principal && own >= maxOwn {
			ls.all = slices.Delete(ls.all, i, i+1)
		}
	}
	if len(ls.all) >= maxLogins {
		ls.all = slices.Delete(ls.all, 0, 1)
	}
	ls.all = append(ls.all, login{hash: sha256.Sum256([]byte(cookie)), principal: principal, counts: counts, ends: now.Add(loginTime)})
	return cookie
}

// find returns the login of a cookie, if it is valid. Its counts also checks the login itself, so that a stream
// of events ends with it.
func (ls *logins) find(cookie string) (login, bool) {
	hash := sha256.Sum256([]byte(cookie))
	l, ok := ls.at(hash)
	l.counts = func() bool {
		_, still := ls.at(hash)
		return still
	}
	return l, ok
}

func (ls *logins) at(hash [sha256.Size]byte) (l login, ok bool) {
	ls.mu.Lock()
	i := slices.IndexFunc(ls.all, func(l login) bool { return l.hash == hash })
	if i >= 0 {
		l = ls.all[i]
	}
	ls.mu.Unlock()
	return l, i >= 0 && l.ends > ls.clock() && l.counts()
}

func (ls *logins) end(cookie string) {
	hash := sha256.Sum256([]byte(cookie))
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.all = slices.DeleteFunc(ls.all, func(l login) bool { return l.hash == hash })
}

// cookieName contains the replica's ID: browsers send a cookie to all ports of a machine.
func (c *Console) cookieName() string { return "__Host-chubby-" + c.cfg.Replica }

// setCookie has the browser keep a cookie for some seconds, or drop it.
func (c *Console) setCookie(w http.ResponseWriter, value string, seconds int) {
	http.SetCookie(w, &http.Cookie{
		Name: c.cookieName(), Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, Secure: true, SameSite: http.SameSiteStrictMode,
	})
}

func (c *Console) loginPage(w http.ResponseWriter, q *http.Request) {
	if !c.cfg.Encrypted {
		http.Redirect(w, q, "/console/", http.StatusSeeOther)
		return
	}
	c.showLogin(w, q, http.StatusOK, "", q.URL.Query().Get("to"))
}

type loginForm struct{ Refusal, To, CertificateRefusal string }

func (c *Console) showLogin(w http.ResponseWriter, q *http.Request, code int, refusal, to string) {
	form := loginForm{Refusal: refusal, To: ownPath(to)}
	if len(q.TLS.PeerCertificates) > 0 {
		if _, _, err := c.cfg.Door.Identify(q.TLS); err != nil {
			form.CertificateRefusal = err.Error()
		}
	}
	c.render(w, code, "login", page{Title: "Log in", Content: form, CSRF: c.formToken("")})
}

func (c *Console) login(w http.ResponseWriter, q *http.Request) {
	if !c.cfg.Encrypted || q.ParseForm() != nil || !c.isFormToken("", q.PostForm.Get("csrf")) {
		c.refuse(w, http.StatusForbidden, notOurForm)
		return
	}
	principal, counts, err := c.verify(q)
	if err != nil {
		code := http.StatusUnauthorized
		if errors.Is(err, errManyLogins) {
			code = http.StatusServiceUnavailable
		}
		c.showLogin(w, q, code, err.Error(), q.PostForm.Get("to"))
		return
	}
	c.setCookie(w, c.logins.add(principal, counts), int(loginTime/time.Second))
	http.Redirect(w, q, ownPath(q.PostForm.Get("to")), http.StatusSeeOther)
}

const notOurForm = "the form is not, or not any more, one of the console's: go back and load the page again"

var errManyLogins = errors.New("others are logging in; try again")

// verify returns the principal of a form's token. It holds its place only meanwhile, since strangers may read
// answers slowly.
func (c *Console) verify(q *http.Request) (principal string, counts func() bool, err error) {
	leave, ok := c.logins.verifying.enter("")
	if !ok {
		return "", nil, errManyLogins
	}
	defer leave()
	ctx, cancel := context.WithTimeout(q.Context(), verifyTime)
	defer cancel()
	return c.cfg.Door.Verify(ctx, strings.TrimSpace(q.PostForm.Get("token")), q.RemoteAddr)
}

func (c *Console) logout(w http.ResponseWriter, q *http.Request) {
	who, err := c.guest(q)
	if err != nil || q.ParseForm() != nil || !c.isFormToken(who.Principal, q.PostForm.Get("csrf")) {
		c.refuse(w, http.StatusForbidden, notOurForm)
		return
	}
	if cookie, err := q.Cookie(c.cookieName()); err == nil {
		c.logins.end(cookie.Value)
	}
	c.setCookie(w, "", -1)
	http.Redirect(w, q, "/console/login", http.StatusSeeOther)
}

// ownPath returns a path of the console, safe for a redirect.
func ownPath(to string) string {
	if !strings.HasPrefix(to, "/console/") || strings.ContainsAny(to, "\\\r\n") || len(to) > maxURL {
		return "/console/"
	}
	return to
}

// formToken returns the token that a principal's form must return. Other sites cannot read it from the console's pages.
func (c *Console) formToken(principal string) string { return c.sign("form", principal) }

// sign returns a code for some words that only this console can make.
func (c *Console) sign(words ...string) string {
	mac := hmac.New(sha256.New, c.key[:])
	for _, word := range words {
		fmt.Fprintf(mac, "%d:%s", len(word), word) // it never fails
	}
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16])
}

func (c *Console) isFormToken(principal, token string) bool {
	//mutant: return true //by TestConsoleActs of ./cell
	return hmac.Equal([]byte(token), []byte(c.formToken(principal)))
}
