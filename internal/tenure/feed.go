package tenure

import "os"

// feed is standard input for CMD: bytes in a pipe.
type feed struct {
	out, in *os.File
	done    chan struct{} // closed when nothing is written any more
}

// startFeed begins to write. CMD need not read all, or any of it.
func startFeed(data []byte) (*feed, error) {
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	f := &feed{out: out, in: in, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		defer in.Close()
		_, _ = in.Write(data) // it ends early when nobody can read any more
	}()
	return f, nil
}

// passOn is called when CMD has the reading end, or will not have it: the write ends once CMD and all that it started are gone.
func (f *feed) passOn() { f.out.Close() }

// wait waits until nothing is written any more.
func (f *feed) wait() { <-f.done }
