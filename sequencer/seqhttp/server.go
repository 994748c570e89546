package seqhttp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/sequencer"
	"github.com/chubbylock/chubby/sequencer/internal/carried"
)

// Header carries a sequencer's text. A request carries exactly one.
const Header = "Chubby-Sequencer"

// FromContext returns the sequencer of the running request, for handlers that
// store its token with what they write, or compare its path.
func FromContext(ctx context.Context) (sequencer.Sequencer, bool) {
	return sequencer.FromContext(ctx)
}

// Middleware lets requests in by the guard. Route requests that need no
// sequencer, such as health checks, around it.
func Middleware(guard *sequencer.Guard) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			values := r.Header.Values(Header)
			if fault := carried.Fault(guard, values, "request", "in the header "+Header); fault != "" {
				refuse(w, api.Errorf(api.BadSequencer, "%s", fault))
				return
			}
			served, err := carried.Admit(r.Context(), guard, values[0], func(ctx context.Context) error {
				parsed := r.MultipartForm
				r := r.WithContext(ctx)
				defer func() {
					// net/http removes the files of a form that is in the request it knows.
					if form := r.MultipartForm; form != nil && form != parsed {
						_ = form.RemoveAll() // an error cannot be reported, as in net/http
					}
				}()
				if r.Body != nil && r.Body != http.NoBody {
					defer unblockReads(ctx, w)()
					r.Body = &sectionBody{ctx: ctx, body: r.Body}
				}
				next.ServeHTTP(w, r)
				return nil
			})
			if !served && err != nil {
				refuse(w, err)
			}
		})
	}
}

// refused is the answer to a request that was not let in; its fields are
// stable.
type refused struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Token   uint64 `json:"token,omitempty"`  // of the request's sequencer, if it has one
	Newest  uint64 `json:"newest,omitempty"` // the greatest let in before for its lock
}

// refuse answers a request that was not let in.
func refuse(w http.ResponseWriter, err error) {
	code := api.CodeOf(err)
	status := http.StatusServiceUnavailable
	if code == api.BadSequencer {
		status = http.StatusPreconditionFailed
	}
	var body struct {
		Error refused `json:"error"`
	}
	body.Error.Code, body.Error.Message = code.String(), err.Error()
	if r := (*sequencer.Refusal)(nil); errors.As(err, &r) {
		body.Error.Token, body.Error.Newest = r.Token, r.Newest
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the peer may be gone
}
