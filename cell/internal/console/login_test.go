package console

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/cell/internal/origin"
	"github.com/chubbylock/chubby/session"
)

// A login counts for an hour, and while what was shown for it counts; not more than a bounded number of them do at a time, and not
// more than a few of one principal. The oldest ends.
func TestLoginsEnd(t *testing.T) {
	now := session.Instant(time.Hour)
	ls := newLogins(func() session.Instant { return now })
	always := func() bool { return true }
	counts := func(cookie string, want bool) {
		t.Helper()
		if l, ok := ls.find(cookie); ok != want || ok && l.principal == "" {
			t.Errorf("the login of %q counts: %v, want %v", cookie, ok, want)
		}
	}
	counts("", false)
	counts("anything", false)
	first := ls.add("ops", always)
	stream, _ := ls.find(first) // it goes on for longer than a request
	now = now.Add(loginTime - 1)
	counts(first, true)
	if !stream.counts() {
		t.Error("what was begun with a login ends before it")
	}
	now = now.Add(1)
	counts(first, false)
	if stream.counts() {
		t.Error("what was begun with a login goes on after it")
	}

	counted := true
	second := ls.add("ops", func() bool { return counted })
	counts(second, true)
	counted = false
	counts(second, false)
	ls.drop(second)

	var own []string
	for range maxOwn + 1 {
		own = append(own, ls.add("alice", always))
	}
	counts(own[0], false)
	for _, cookie := range own[1:] {
		counts(cookie, true)
	}
	stream, _ = ls.find(own[1])
	ls.drop(own[1])
	counts(own[1], false)
	if stream.counts() {
		t.Error("what was begun with a login goes on after the logout")
	}
	for i := range 2 * maxLogins {
		counts(ls.add("p"+strconv.Itoa(i), always), true)
	}
	if len(ls.all) > maxLogins {
		t.Errorf("%d logins are kept", len(ls.all))
	}
	counts(own[2], false)
}

// Nobody is told that something was not done which may have been done.
func TestOutcomes(t *testing.T) {
	for _, err := range []error{
		api.Errorf(api.Uncertain, "the master was deposed"), api.Errorf(api.DeadlineExceeded, "no answer"), fmt.Errorf("asking: %w", context.DeadlineExceeded), errors.New("anything"),
		api.Errorf(api.SessionExpired, "the session has ended"),
	} {
		if said := outcomeOf(err); !strings.HasPrefix(said, "It is not known whether it was done") {
			t.Errorf("%v is told as %q", err, said)
		}
	}
	for _, code := range []api.Code{api.PermissionDenied, api.Unavailable, api.NotFound, api.InvalidArgument, api.QuotaExceeded} {
		if said := outcomeOf(api.Errorf(code, "no")); !strings.HasPrefix(said, "It was not done. ") {
			t.Errorf("%v is told as %q", code, said)
		}
	}
}

// notArriving is a form that never comes.
type notArriving struct{ come chan struct{} }

func (n notArriving) Read([]byte) (int, error) {
	<-n.come
	return 0, io.EOF
}

// However many strangers send forms that never come, a request is served; and those who read slowly have places apart, a few for each address.
func TestStrangersTakeNoPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{Cell: "local", Replica: "r1", Tokens: true})
		never := notArriving{make(chan struct{})}
		for n := range 2 * maxServed {
			q := httptest.NewRequest(http.MethodPost, "http://localhost/console/login", never)
			q.RemoteAddr = fmt.Sprintf("10.0.0.%d:1", n)
			go c.ServeHTTP(httptest.NewRecorder(), q)
		}
		synctest.Wait()
		w := httptest.NewRecorder()
		c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/console/static/none", nil))
		if w.Code != http.StatusNotFound {
			t.Errorf("beside forms that never come, a request is answered %d", w.Code)
		}
		close(never.come)
		synctest.Wait()
	})
	s := newPlaces(maxStrangers, maxFromOne)
	for n := range 2 * maxFromOne { // of one network, as a machine has one to itself
		if _, ok := s.enter(origin.Of(fmt.Sprintf("[2001:db8::%x]:1", n))); ok != (n < maxFromOne) {
			t.Errorf("request %d of a stranger with many addresses: %v", n, ok)
		}
	}
	s = newPlaces(maxStrangers, maxFromOne)
	var leave []func()
	for n := range 2 * maxStrangers {
		left, ok := s.enter(origin.Of(fmt.Sprintf("10.0.0.1:%d", n)))
		if ok != (n < maxFromOne) {
			t.Errorf("request %d of a stranger: %v", n, ok)
		}
		if ok {
			leave = append(leave, left)
		}
	}
	for n := range 2 * maxStrangers {
		left, ok := s.enter(origin.Of(fmt.Sprintf("10.0.1.%d:1", n)))
		if ok != (n < maxStrangers-maxFromOne) {
			t.Errorf("request %d of another stranger: %v", n, ok)
		}
		if ok {
			leave = append(leave, left)
		}
	}
	for _, one := range leave {
		one()
	}
	if s.taken != 0 || len(s.by) != 0 {
		t.Errorf("%d places are taken, by %v", s.taken, s.by)
	}
}

// A form has a few fields.
func TestFormsHaveFewFields(t *testing.T) {
	c := New(Config{Cell: "local", Replica: "r1"})
	w := httptest.NewRecorder()
	c.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://localhost/console/login", strings.NewReader(strings.Repeat("a&", maxFields+1))))
	if w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a form of very many fields is answered %d", w.Code)
	}
}

// tokenDoor knows no token.
type tokenDoor struct{ Door }

func (tokenDoor) Verify(context.Context, string, string) (string, func() bool, error) {
	return "", nil, errors.New("this is no JWT")
}

// unread is a browser that reads nothing of its answer.
type unread struct {
	httptest.ResponseRecorder
	reads chan struct{}
}

func (u *unread) Write(p []byte) (int, error) {
	<-u.reads
	return len(p), nil
}

// Strangers at one address, who read the answers to their logins as slowly as they like, keep nobody else from logging in.
func TestSlowLoginsKeepNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{Cell: "local", Replica: "r1", Tokens: true, Encrypted: true, Door: tokenDoor{}, Clock: func() session.Instant { return 1 }})
		logIn := func(w http.ResponseWriter, from string) {
			form := url.Values{"csrf": {c.formToken("")}, "token": {"a"}}
			q := httptest.NewRequest(http.MethodPost, "https://r1/console/login", strings.NewReader(form.Encode()))
			q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			q.RemoteAddr, q.TLS = from, &tls.ConnectionState{}
			c.ServeHTTP(w, q)
		}
		slow := make(chan struct{})
		for n := range maxFromOne {
			go logIn(&unread{ResponseRecorder: *httptest.NewRecorder(), reads: slow}, fmt.Sprintf("10.0.0.1:%d", n+1))
		}
		synctest.Wait()
		w := httptest.NewRecorder()
		logIn(w, "10.0.0.2:1")
		if w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), "no JWT") {
			t.Errorf("beside %d slow readers at one address, another's token is answered %d: looked at: %v, others are logging in: %v",
				maxFromOne, w.Code, strings.Contains(w.Body.String(), "no JWT"), strings.Contains(w.Body.String(), "others are logging in"))
		}
		close(slow)
		synctest.Wait()
	})
}
