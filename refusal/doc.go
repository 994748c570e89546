// Package refusal is what the state machine of a cell says when it says no: a cause
// from a closed list, and the facts that belong to it.
//
// Refusals are part of the replicated state: the answer of a request is kept for its
// retries, and every replica must keep the same. So a refusal has no sentence in it.
// The sentence that people read is made from the cause and the facts where it is shown,
// and a version of Chubby may word it differently than another. The only text in a
// refusal is what users supplied: names, principals, and why they did something.
//
// The package has no state, reads no clock and imports nothing but package api.
package refusal
