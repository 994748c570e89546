package wire

import (
	"bytes"
	"sync"
)

// verified caches tokens of one kind with right check digits, and their contents: to compute the digits for
// each call costs ten times as much. It is safe for concurrent use. The zero value is empty.
type verified[V any] struct {
	mu     sync.Mutex // guards the fields below; no other mutex is locked while it is held
	secret []byte     // of the cached tokens
	values map[string]V
}

// Limits of the cache: tokens, and the bytes of one. A full cache is emptied; tokens in use return with their next call.
const (
	maxVerified     = 4_096
	maxVerifiedSize = 256
)

// get returns the contents of a token, if it was put with the same secret.
func (c *verified[V]) get(secret, token []byte) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !bytes.Equal(c.secret, secret) {
		return value, false
	}
	value, ok = c.values[string(token)]
	return value, ok
}

// put caches the contents of a token whose check digits are right with that secret.
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
