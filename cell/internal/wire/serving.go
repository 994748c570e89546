package wire

import (
	"github.com/chubbylock/chubby/api"
	pb "github.com/chubbylock/chubby/api/chubbypb"
)

// Limits of requests that are always served.
const (
	// maxKeepAlive limits a KeepAlive, in bytes. A session has one at a time, which is never refused.
	maxKeepAlive = 1 << 10
	// maxVital limits other vital calls, in bytes. Most of it is the list of a session's outstanding requests.
	maxVital = 4 << 10
)

// serve begins to serve an arrived call, or refuses it. The caller must call served afterwards, which does
// nothing after a refusal.
func (c *call) serve(method string, size requestSize) error {
	if err := checkSize(method, size); err != nil {
		return err
	}
	err := c.admitRequest(method, size)
	if err == nil && size.weight() > 0 {
		c.of.all.relieve(c.of, c.of.held())
	}
	return err
}

func (c *call) admitRequest(method string, size requestSize) error {
	a, mayWait := c.of, !isVital(method, size)
	late := a.pace(method, size)
	a.mu.Lock()
	defer a.mu.Unlock()
	c.begun = true
	if late != nil {
		c.wasted()
		return late
	}
	if !c.open {
		return api.Errorf(api.Cancelled, "the call was given up before it was served")
	}
	c.request += size.weight()
	a.add(size.weight())
	if mayWait {
		//mutant: if err := error(nil); err != nil {
		if err := a.full(c.request); err != nil {
			return err
		}
	}
	c.serving = true
	return nil
}

// checkSize rejects a too long KeepAlive, since a KeepAlive is always served.
func checkSize(method string, size requestSize) error {
	if size.bytes > maxKeepAlive && (method == pb.Chubby_KeepAlive_FullMethodName || method == pb.Chubby_KeepAlives_FullMethodName) {
		return api.Errorf(api.InvalidArgument, "a KeepAlive of %d bytes; it has at most %d", size.bytes, maxKeepAlive)
	}
	return nil
}

// isVital reports whether a call is served even above the memory limits. Else a client that fills a limit would
// end other sessions at its address: they could neither extend leases, nor find the master, nor release locks.
// Vital requests are small, and counted.
func isVital(method string, size requestSize) bool {
	return size.bytes <= maxVital && (isEndless(method) || givesBack(method))
}

// isEndless reports whether a call is served at any rate, since it does not reach the log.
func isEndless(method string) bool {
	switch method {
	//mutant: case pb.Chubby_KeepAlive_FullMethodName, pb.Chubby_KeepAlives_FullMethodName:
	//mutant: case pb.Chubby_KeepAlives_FullMethodName, pb.Cell_Locate_FullMethodName:
	case pb.Chubby_KeepAlive_FullMethodName, pb.Chubby_KeepAlives_FullMethodName, pb.Cell_Locate_FullMethodName:
		return true
	}
	return false
}

// givesBack reports whether a call releases something. Such calls count, since each is a command of the log, but
// have a reserve of their rate: a client that makes too many calls can still release.
func givesBack(method string) bool {
	switch method {
	case pb.Chubby_Release_FullMethodName, pb.Chubby_Cancel_FullMethodName, pb.Chubby_CloseHandle_FullMethodName, pb.Chubby_EndSession_FullMethodName:
		return true
	}
	return false
}

func (c *call) served() {
	c.of.mu.Lock()
	c.serving = false
	c.settle()
	last := c.of.closed && c.of.bytes == 0
	c.of.mu.Unlock()
	if last {
		c.of.all.forget(c.of.origin, c.of.conn.clock())
	}
}
