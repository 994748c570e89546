package seqhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/sequencer/seqhttp"
)

// inTheContext is a lock with the sequencer of that token.
type inTheContext uint64

func (l inTheContext) Sequencer() sequencer.Sequencer {
	s, err := sequencer.Parse(text(uint64(l)))
	if err != nil {
		panic(err)
	}
	return s
}

// Without a source, a request carries the sequencer of the lock in whose context it is made; one in none is not sent.
func TestSequencerOfTheContext(t *testing.T) {
	server := serve(t, false, false, func(w http.ResponseWriter, r *http.Request) {
		held, _ := seqhttp.FromContext(r.Context())
		_, _ = io.WriteString(w, held.String())
	})
	client := &http.Client{Transport: seqhttp.Transport(server.Client().Transport, nil), Timeout: patience}
	send := func(ctx context.Context) (string, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(r)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return string(body), err
	}
	for _, token := range []uint64{41, 57} {
		if got, err := send(sequencer.NewContext(t.Context(), inTheContext(token))); err != nil || got != text(token) {
			t.Errorf("the handler saw %q, %v; want %q", got, err, text(token))
		}
	}
	if got, err := send(t.Context()); !errors.Is(err, api.BadSequencer) {
		t.Errorf("without a lock: %q, %v", got, err)
	}
}
