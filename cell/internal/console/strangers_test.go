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
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chubbylock/chubby/cell/internal/origin"
	"github.com/chubbylock/chubby/session"
)

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
