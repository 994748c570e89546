package hold

import (
	"context"
	"errors"
	"slices"

	"github.com/chubbylock/chubby/api"
)

// Gone reports whether an error says that a node no longer exists.
func Gone(err error) bool { return errors.Is(err, api.HandleClosed) || errors.Is(err, api.NotFound) }

// Unusable reports whether an error concerns one file of a recipe's directory only: it is gone, being removed
// (Exists), no file, or not for this program. Recipes skip such a file.
func Unusable(err error) bool {
	return Gone(err) || slices.Contains([]api.Code{api.Exists, api.PermissionDenied, api.IsDirectory, api.NotDirectory}, api.CodeOf(err))
}

// Busy reports whether a tried lock was not had, and should be waited for. LockLost: an operator took it
// before the answer came.
func Busy(err error) bool {
	return errors.Is(err, api.LockHeld) || errors.Is(err, api.LockDelayed) || errors.Is(err, api.LockLost)
}

// Passing reports whether the wait for a lock may be repeated: its file was deleted, or an operator took the
// lock before the answer came. The caller opens the file and waits again.
func Passing(err error) bool { return errors.Is(err, api.HandleClosed) || errors.Is(err, api.LockLost) }

// Ended returns the error of a recipe's call: that it was given up, if so, whatever the inner call may have
// left uncertain.
func Ended(ctx context.Context, err error, op, path string) error {
	if err == nil || ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err
	}
	e := &api.Error{Code: api.ContextCode(ctx.Err()), Op: op, Path: path, Err: err, Message: "its time was over"}
	if said := (*api.Error)(nil); errors.As(err, &said) && said.Code == e.Code && said.Op == op && said.Path == path {
		return err // it says so already
	}
	if e.Code == api.Cancelled {
		e.Message = "it was given up"
	}
	return e
}
