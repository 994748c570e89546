package api_test

import (
	"errors"
	"fmt"

	"github.com/chubbylock/chubby/api"
)

// A path names the cell first. What is not a path is said with what is wrong with it.
func ExampleParsePath() {
	path, err := api.ParsePath("/ls/foo/svc/primary")
	fmt.Println(path.Cell(), path, err)
	_, err = api.ParsePath("/etc/passwd")
	fmt.Println(errors.Is(err, api.InvalidPath))
	// Output:
	// foo /ls/foo/svc/primary <nil>
	// true
}

// Every error of a call has a code, which errors.Is asks for, also through other errors; with it
// come facts, such as who holds a lock.
func ExampleError() {
	refused := api.Errorf(api.LockHeld, "the lock is held")
	refused.Holders = []api.Holder{{Principal: "web1", Reason: "nightly backup"}}
	err := fmt.Errorf("back up: %w", refused)

	fmt.Println(errors.Is(err, api.LockHeld), api.CodeOf(err))
	var e *api.Error
	if errors.As(err, &e) {
		fmt.Println(e.Holders[0].Principal, "for", e.Holders[0].Reason)
	}
	// Output:
	// true LockHeld
	// web1 for nightly backup
}
