package main

import (
	"context"
	"fmt"
	"io"
	"net"

	"github.com/spf13/cobra"
)

func newConfigCommand() *cobra.Command {
	group := &cobra.Command{
		Use:   "config",
		Short: "Check a configuration, show what counts, or print an example",
		Args:  cobra.ArbitraryArgs,
		RunE:  needsVerb,

		SuggestionsMinimumDistance: 2,
	}
	group.AddCommand(
		newConfigShowCommand(),
		&cobra.Command{
			Use:     "check FILE",
			Short:   "Report everything wrong with a configuration file",
			Example: "  chubbyd config check /etc/chubby/chubbyd.yaml",
			Long: `check reads a configuration file as serve would, without the environment, and
reports all that is wrong with it at once, each with its line and column, on standard
error. It exits with 1 if anything is. What is allowed and seldom meant is told as
a warning: an even number of members, members whose names only their own
machine can use, and a bucket for backups that is reached without encryption.`,
			Args: arguments(cobra.ExactArgs(1)),
			RunE: func(cmd *cobra.Command, args []string) error {
				return checkConfig(cmd.Context(), args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
			},
		},
		&cobra.Command{
			Use:     "example",
			Short:   "Print a complete configuration file with comments",
			Example: "  chubbyd config example >chubbyd.yaml",
			Args:    arguments(cobra.NoArgs),
			RunE: func(cmd *cobra.Command, _ []string) error {
				_, err := io.WriteString(cmd.OutOrStdout(), exampleConfig)
				return err
			},
		},
	)
	return group
}

func checkConfig(ctx context.Context, name string, out, complaints io.Writer) error {
	d := newDraft(name)
	if err := d.readFile(name); err != nil {
		return err
	}
	problems := d.validate()
	for _, p := range problems {
		fmt.Fprintln(complaints, p)
	}
	switch len(problems) {
	case 0:
		for _, warning := range warnings(ctx, d.settings, net.DefaultResolver) {
			fmt.Fprintf(complaints, "%s: warning: %s\n", name, warning)
		}
		_, err := fmt.Fprintf(out, "%s: replica %s of cell %s, %d members: ok\n",
			name, d.replica.ID, d.replica.Cell, len(d.replica.Members))
		return err
	case 1:
		return fmt.Errorf("%s has one fault", name)
	default:
		return fmt.Errorf("%s has %d faults", name, len(problems))
	}
}

const exampleConfig = `# One replica of a Chubby cell. Every key is also a flag of 'chubbyd serve'
# (--log-level warn) and a variable (CHUBBYD_LOG_LEVEL=warn); a flag counts more
# than a variable, and a variable more than this file.
# 'chubbyd config check FILE' reports everything that is wrong with a file.

# The cell's name, the second part of every path: /ls/main/...
# Letters, digits, '-', '_' and '.'.
cell: main

# This replica's name, never used again in this cell. It must be one of the
# members. This and data are all that differs between the replicas of a cell.
id: r1

# Every replica of the cell when it begins, this one among them; the same list
# everywhere. Once chubbyctl has changed them the cell knows them itself, and says what
# differs here.
# Five replicas survive two failures, three survive one.
#   client  where clients reach it
#   raft    where the other replicas reach it; keep it off public networks
#   http    /healthz, /readyz and /metrics; left out, there are none. Whoever reaches
#           it may read them: keep it to a private network, or to localhost
members:
  - id: r1
    client: chubby1.example.org:7421
    raft: chubby1.example.org:7431
    http: chubby1.example.org:7441
  - id: r2
    client: chubby2.example.org:7421
    raft: chubby2.example.org:7431
    http: chubby2.example.org:7441
  - id: r3
    client: chubby3.example.org:7421
    raft: chubby3.example.org:7431
    http: chubby3.example.org:7441

# Where this replica listens. auto: at the addresses of its member; where these
# have a name instead of an IP address, on every interface, because the machine's
# own name is often entered as 127.0.1.1 in its /etc/hosts. A host (10.0.0.5) keeps
# to that one, but an http port at localhost or 127.0.0.1 stays there. CLIENT,RAFT[,HTTP]
# in full (:7421,:7431,127.0.0.1:7441) is for ports that are mapped, as by NAT or a
# container, and for an http port that is not that of the member.
listen: auto

# The host:port at which clients reach this replica, if it is not the one of its
# member: for clients on the far side of a mapped port.
advertise: auto

# The directory that belongs to this replica alone; created with --bootstrap.
data: /var/lib/chubby/data

# Begin the cell if the data directory holds nothing. Set it on every member of a
# new cell; the cell begins when all of them were reached. It may stay: it means
# nothing to a replica that has data, and one that lost its data is refused.
bootstrap: false

# Wait to be added to a cell that has begun, if the data directory holds nothing:
# 'chubbyctl cell add' or 'cell replace' lets it in, under an id that no replica of the
# cell has had. Its members are those to ask, and this one. It may stay, as bootstrap may.
join: false

# As join, for a spare: 'chubbyctl cell add --spare' has it stand by, and it takes the
# place of a replica that has not answered the master for replace-after. Set the
# latter on all replicas, longer than it takes to service a machine.
spare: false
replace-after: 4h

# Who may do what concerns the whole cell, when it begins: change its access
# control lists, end sessions, break locks, restore a backup. Principals, separated
# by commas, or everybody. A cell with certificates does not begin without.
# Afterwards the list /ls/main/acl/operators says who may.
operators: spiffe://example.org/ops/alice, ops.example.org

# Where the Raft log is kept: wal (segments, one sync a write) or boltdb (one
# file, two syncs a write). A replica keeps the one it began with.
log-store: wal

# How long a replica that hears nothing from the master waits before it stands
# for election: between this and twice this. 50ms to 900ms: less than the
# shortest lease. Raise it where the replicas are far apart.
election-timeout: 300ms

# How long one operation on the disk may take. After that the disk counts as stalled:
# the replica falls silent and ends, so that others, whose disks are well, can go on.
# 1s to 10m. Raise it only where replicas share a disk, as they do on a machine for tests.
disk-stall: 3s

# A change of a file waits until clients that have it in their caches have
# dropped it, or their cache leases are over. A client that holds up a change for
# longer than this is ended with the lease it has. 1s to 1m; 0: no such bound.
slow-client: 0

# How many KeepAlives a second a master wants at most. When there are so many
# sessions that more would come, leases grow from 12s to 60s.
keepalives: 2000

# How many connections of clients this replica accepts, and how many of those from
# one IP address (of IPv6, one network of 64 bits). A process needs one for all of
# its sessions, and one for its calls. Raise the second where many clients are behind one NAT.
max-connections: 40000
max-connections-per-address: 4000

# How many calls a second this replica serves one principal, how many sessions that
# may open; how many calls it serves one IP address, and how many connections that may
# open (each is a handshake). Clients try again what is refused; what keeps sessions
# alive, finds the master or gives something back is never refused. 0: no such bound.
max-calls-per-principal: 50000
max-new-sessions-per-principal: 1000
max-calls-per-address: 100000
max-handshakes-per-address: 500

# How much memory the calls of clients may hold, in MiB; those of one address a
# quarter of it, those of one connection a sixteenth. What clients do not read, or send
# only in part, takes up to twice as much before connections are closed.
client-memory-mib: 1024

# How much the cell may hold, in MiB: contents (those of access control lists three times), names,
# and 1 KiB for each file and directory. What makes it more is refused (QuotaExceeded) by this
# replica when it is the master; what makes it less never is, and operators may have a sixteenth
# more. 0: two fifths of the memory that this process may use (GOMEMLIMIT, its control group, the
# machine). Give all replicas as much memory.
max-contents-mib: 0

# Certificates of the client port: what clients are shown, its key, and who signs
# those of clients. All files are in PEM, and read again when they change.
# 'chubbyd certs' makes a set.
tls-cert: /etc/chubby/server-r1.crt
tls-key: /etc/chubby/server-r1.key
tls-ca: /etc/chubby/ca.crt

# Which certificates of clients were revoked; may be left out.
tls-crl: /etc/chubby/ca.crl

# The same of the Raft port. The certificate is that of this replica: its URI is
# chubby://main/replica/r1. Another authority than that of clients signs for it.
peer-tls-cert: /etc/chubby/replica-r1.crt
peer-tls-key: /etc/chubby/replica-r1.key
peer-tls-ca: /etc/chubby/replica-ca.crt
peer-tls-crl: /etc/chubby/replica-ca.crl

# Tokens (JWT) that clients may show in place of a certificate: the keys by which
# they are checked, a file or a URL with a JSON Web Key Set, whose tokens they are,
# and for whom. All six may be left out. For a URL: who signs the certificate of its
# server, and a token for that server. The principal is the claim sub.
token-keys: https://issuer.example.org/keys
token-keys-ca: none
token-keys-token: none
token-issuer: https://issuer.example.org
token-audience: chubby
token-claim: none

# The audit log: what operators do, who changes who may do what, and who is refused,
# a JSON object a line. none, stdout, or a file; refusals are beside it, here in
# audit-refused.log. Each of the two is renamed at audit-file-mib MiB, and audit-files
# renamed ones are kept (0: something else renames them, as logrotate).
audit-file: /var/log/chubby/audit.log
audit-file-mib: 100
audit-files: 10

# Have clients find the replicas by the name of the cell: the master keeps the SRV
# records of _chubby._tcp.main.example.org, and addresses of replicas that have no
# names, at the primary server of the zone. dns-key is a key as tsig-keygen writes
# it. Set it on all replicas; clients set CHUBBY_DOMAIN=example.org.
dns-server: ns1.example.org:53
dns-domain: example.org
dns-key: /etc/chubby/dns.key
dns-ttl: 1m

# Or have a program do that, which reads {"cell": ..., "replicas": [{"id": ...,
# "client": ...}], "left": [...]}, and exits with 0 when it is done. The master runs
# it when replicas change, when it becomes the master, and every five minutes.
dns-hook: none

# Backups that the master takes by itself: into a directory of its machine (the same on
# all, shared or not), or a bucket (s3://bucket/prefix?endpoint=https://HOST&region=NAME,
# with the credentials of Amazon's tools: AWS_ACCESS_KEY_ID, ~/.aws/credentials). A new
# one every backup-every, 1m to 720h; the newest backup-keep stay.
backup-to: /var/lib/chubby/backups
backup-every: 6h
backup-keep: 28

# Count how long locks are waited for and held apart for those below each of these
# paths: at most 32, separated by commas.
metric-prefixes: /ls/main/services, /ls/main/jobs

# Send spans of calls to a collector of OpenTelemetry, by OTLP over gRPC: of the calls
# that clients have traced, and of this part of the others. What else there is to say
# (OTEL_EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_CERTIFICATE, ...) is in the environment.
trace-endpoint: http://localhost:4317
trace-ratio: 0.001

# Serve a console for browsers at the http port (https://HOST:7441/): what the cell does, locks,
# sessions, files, and forms for operators. People log in with a certificate or a token,
# and see and do what their rights allow. In a cell without certificates it is for this
# machine alone: the http port has to listen on 127.0.0.1.
console: false

# Run without certificates. Then whoever reaches this replica may do anything, and
# read what is on the network.
insecure: false

# Take a client's word for who it is (chubbyctl --as). For development only, and
# only if insecure.
insecure-principals: false

# The least level that is logged, to standard error: debug, info, warn, error.
log-level: info

# How log lines are written: text or json.
log-format: text

# How long a stop may take (SIGTERM): a master hands over first. 1s to 10m.
stop-timeout: 10s
`
