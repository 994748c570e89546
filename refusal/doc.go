// Package refusal has the negative answers of a cell's state machine: a cause from a closed list,
// and the facts that belong to it.
//
// Refusals are part of the replicated state: the answer to a request is kept for its retries, and
// every replica must keep the same. So a refusal has no sentence in it. Message makes the sentence
// for people from the cause and the facts, and versions of Chubby may word it differently. The only
// text in a refusal comes from users: names, principals, and their reasons.
//
// The package has no state, reads no clock and imports nothing but package api.
package refusal
