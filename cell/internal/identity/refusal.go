package identity

import (
	"errors"
	"fmt"

	"github.com/chubbylock/chubby/api"
)

// ErrRefused is in the chain of every error of a replica that must not run on the data
// directory it has: the directory is empty, has lost data or is damaged, or belongs to
// another replica or cell. Starting the replica again does not help; an operator has to
// look.
var ErrRefused = errors.New("the replica must not run")

// refusal is an error that wraps ErrRefused and prints only its own text.
type refusal struct{ err *api.Error }

// Error returns the text.
func (r refusal) Error() string { return r.err.Error() }

// Is reports whether target is ErrRefused.
func (r refusal) Is(target error) bool { return target == ErrRefused }

// Unwrap returns the *api.Error.
func (r refusal) Unwrap() error { return r.err }

// Refuse makes an error a refusal: ErrRefused is in its chain, and it prints its own
// text only.
func Refuse(err *api.Error) error { return refusal{err} }

// Refused returns a refusal of that text.
func Refused(format string, args ...any) error {
	return Refuse(&api.Error{Code: api.Unavailable, Message: fmt.Sprintf(format, args...)})
}

// LossAdvice is what to do about a replica that has lost data, or whose data is
// damaged. With an empty directory it could vote again and break promises that it
// gave: votes, and entries that it acknowledged.
const LossAdvice = "the other replicas go on serving while they are a majority; keep this directory for analysis, and do not start the replica with an empty one: " +
	"it would be refused. Replace it by a new replica, under an ID that was never used: start that with --join, and run chubbyctl cell replace"
