// Package backupstore is where backups are kept: a directory, or a bucket of a server that speaks the protocol of Amazon S3.
//
// A backup appears in a [Place] under its name when it is whole, and replaces nothing. Other files stay as they are.
package backupstore
