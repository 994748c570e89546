package seqhttp

import (
	"errors"
	"net/http"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer/internal/carried"
)

// Transport returns a RoundTripper that sends the result of source with every
// request, in place of any sequencer that the request has already. It uses
// base, or http.DefaultTransport if base is nil. source must be safe for
// concurrent use, and is called once per request, also for redirected ones. It
// returns the text of the sequencer of the lock held now, or "" if none is
// held: then the request fails here with BadSequencer and is not sent.
//
// A nil source stands for the context of the request: what is sent is the
// sequencer that sequencer.FromContext finds in it, which is that of the lock
// under whose context (client.Lock.Context, client.Lock.With) the request is
// made.
func Transport(base http.RoundTripper, source func() string) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &transport{base: base, source: source}
}

type transport struct {
	base   http.RoundTripper
	source func() string
}

// RoundTrip sends a copy of r: a RoundTripper must not change the caller's
// request.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	text := carried.Text(r.Context(), t.source)
	if text == "" {
		err := error(&api.Error{Code: api.BadSequencer, Op: "send " + r.Method + " " + r.URL.Redacted(),
			Message: "the request was not sent: there is no sequencer, so the lock is not held; acquire it first"})
		if r.Body != nil {
			err = errors.Join(err, r.Body.Close())
		}
		return nil, err
	}
	r = r.Clone(r.Context())
	if r.Header == nil {
		r.Header = make(http.Header)
	}
	r.Header.Set(Header, text)
	return t.base.RoundTrip(r)
}
