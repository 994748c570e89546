package console

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
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
	var s strangers
	var leave []func()
	for n := range 2 * maxStrangers {
		left, ok := s.enter(fmt.Sprintf("10.0.0.1:%d", n))
		if ok != (n < maxFromOne) {
			t.Errorf("request %d of a stranger: %v", n, ok)
		}
		if ok {
			leave = append(leave, left)
		}
	}
	for n := range 2 * maxStrangers {
		left, ok := s.enter(fmt.Sprintf("10.0.1.%d:1", n))
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
	if s.all != 0 || len(s.from) != 0 {
		t.Errorf("%d places are taken, by %v", s.all, s.from)
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
