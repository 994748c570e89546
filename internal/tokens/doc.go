// Package tokens checks the bearer tokens by which clients say who they are: JSON Web Tokens (RFC 7519) that
// an issuer has signed, for this service, for a time. Service-account tokens of Kubernetes are such, and so is what any
// provider of OpenID Connect gives to programs.
//
// A token names a principal by one of its claims. Only signatures with public keys count; the keys are a JSON Web
// Key Set (RFC 7517), in a file or at a URL, and are read again: when they change, every few minutes, and
// when a token names one that is not known. If they cannot be read, those that were read before stay in use.
package tokens
