package backupstore

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

// losing is a way to a server on which answers are lost: the server does what it is asked for, and nobody is told.
type losing struct {
	to   http.Handler
	lose atomic.Int64 // so many of the next answers to what makes an object
	lost atomic.Int64
}

func (l *losing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	makes := r.Method == http.MethodPut && !query.Has("partNumber") || r.Method == http.MethodPost && query.Has("uploadId")
	if !makes || l.lose.Add(-1) < 0 {
		l.to.ServeHTTP(w, r)
		return
	}
	l.to.ServeHTTP(httptest.NewRecorder(), r)
	l.lost.Add(1)
	panic(http.ErrAbortHandler) // which closes the connection
}

// A server stores a backup, and its answer is lost: at the first try, whose second is refused because of the first, or at every try. The file
// was made all the same, and once. What another has made is not taken for it.
func TestAnswersOfABucketAreLost(t *testing.T) {
	text := startServer(t)
	at, server, _ := strings.Cut(text, "endpoint=")
	to, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	way := &losing{to: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host // which was signed
	}}}
	proxy := httptest.NewServer(way)
	defer proxy.Close()
	p, err := At(at + "endpoint=" + proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{0, partSize} {
		for _, lost := range []int64{1, 100} {
			name := fmt.Sprintf("x-%d-%d", size, lost)
			filler := strings.Repeat(".", size)
			way.lost.Store(0)
			way.lose.Store(lost)
			err := p.Create(t.Context(), name, writes("the first"+filler))
			way.lose.Store(0)
			if n := way.lost.Load(); err != nil || n == 0 || lost == 1 && n != 1 {
				t.Errorf("%s, of which %d answers were lost: %v", name, n, err)
			}
			way.lose.Store(lost)
			if err := p.Create(t.Context(), name, writes("the second"+filler)); !errors.Is(err, fs.ErrExist) {
				t.Errorf("%s again: %v", name, err)
			}
			way.lose.Store(0)
			if got := contents(t, p, name); string(got) != "the first"+filler {
				t.Errorf("%s is %.20q", name, got)
			}
		}
	}
	if names, err := p.List(t.Context()); err != nil || len(names) != 4 {
		t.Errorf("there are %q, %v", names, err)
	}
}
