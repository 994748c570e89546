package cell

import (
	"context"
	"time"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/internal/tokens"
)

func (r *Replica) openTokens(ctx context.Context) error {
	if r.cfg.Tokens == (TokenConfig{}) {
		return nil
	}
	var err error
	if r.tokens, err = tokens.Open(ctx, r.cfg.Tokens); err != nil {
		return &api.Error{Code: api.InvalidArgument, Op: "start", Message: err.Error(), Err: err}
	}
	return nil
}

type clientTokens struct{ *tokens.Store }

func (t clientTokens) Verify(ctx context.Context, raw string) (string, func() bool, error) {
	token, err := t.Store.Verify(ctx, raw)
	//mutant: return token.Principal, func() bool { return true }, err //by TestTokensEnd of ./cell
	return token.Principal, func() bool { return t.Counts(token) }, err
}

// watchTokens reads the keys again regularly, and when a token names an unknown key, until ctx ends.
func (r *Replica) watchTokens(ctx context.Context) {
	if r.tokens == nil {
		return
	}
	every := time.NewTicker(certificatesEvery)
	defer every.Stop()
	for failed := false; ctx.Err() == nil; {
		changed, err := r.tokens.Refresh(ctx)
		switch {
		case err != nil && !failed:
			r.log.Error("the keys of tokens cannot be read; those that were read before stay in use, and it is tried again", "event", "token_keys_unread", "error", err)
		case changed:
			r.log.Info("read the keys of tokens", "file", r.cfg.Tokens.Keys)
		}
		failed = err != nil
		select {
		case <-every.C:
		case <-r.tokens.Wanted():
		case <-ctx.Done():
		}
	}
}
