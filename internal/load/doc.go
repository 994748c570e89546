// Package load has clients repeat operations for a while, and records how long each took. It knows nothing of what
// the operations do.
package load
