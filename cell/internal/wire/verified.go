package wire

import (
	"bytes"
	"sync"
)

// verified remembers tokens of one kind whose check digits were right, and what they say:
// to compute the digits for each call of a session anew costs ten times as much. It is safe
// for concurrent use. The zero value remembers nothing yet.
type verified[V any] struct {
	mu     sync.Mutex // guards what follows; nothing else is locked while it is held
	secret []byte     // with which the digits were right
	values map[string]V
}

// What is remembered: so many tokens, none of more bytes. Then everything is forgotten, and
// what is in use comes back with its next call.
const (
	maxVerified     = 4_096
	maxVerifiedSize = 256
)

// get returns what a token says, if it was put with the same secret.
func (c *verified[V]) get(secret, token []byte) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !bytes.Equal(c.secret, secret) {
		return value, false
	}
	value, ok = c.values[string(token)]
	return value, ok
}

// put remembers what a token says whose check digits are right with that secret.
func (c *verified[V]) put(secret, token []byte, value V) {
	if len(token) > maxVerifiedSize {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.values == nil || len(c.values) >= maxVerified || !bytes.Equal(c.secret, secret) {
		c.secret, c.values = secret, map[string]V{}
	}
	c.values[string(token)] = value
}
