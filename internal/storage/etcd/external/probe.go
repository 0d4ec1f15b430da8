package external

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/everynode/everynode/internal/storage/etcd/kv"
)

const (
	// probePatience is how long one server may take to answer one question.
	probePatience = 5 * time.Second
	// majorityPatience is how long an etcd may take to have a leader.
	majorityPatience = 15 * time.Second
	// probeLease is how many seconds the lease lasts that is taken for a trial.
	probeLease = 30
)

// Probe finds out whether the etcd that the configuration names can be used: whether
// it can be reached, by whom, and whether it has what an API needs. The error says in
// one line what is wrong.
func Probe(ctx context.Context, c storagebackend.Config) error {
	secured, err := remoteTLS(c.Transport)
	if err != nil {
		return err
	}
	client, err := remote(c.Transport)
	if err != nil {
		return err
	}
	defer client.Close()
	var failed []error
	for _, server := range c.Transport.ServerList {
		if err := probeServer(ctx, client.Client, secured, server); err != nil {
			var old *lackError
			if errors.As(err, &old) {
				return err
			}
			failed = append(failed, err)
		}
	}
	if len(failed) == len(c.Transport.ServerList) {
		return fmt.Errorf("%w; start etcd, or correct --etcd-servers and the files for it", failed[0])
	}
	if err := probeMajority(ctx, client.Client, c.Prefix); err != nil {
		return err
	}
	return probeFeatures(ctx, client.Client, c.Prefix)
}

// lackError says what an etcd has not.
type lackError struct{ lacks string }

func (e *lackError) Error() string {
	return e.lacks + "; the API needs etcd 3.4.31, 3.5.13, 3.6 or newer"
}

// probeServer asks one server who it is.
func probeServer(ctx context.Context, client *clientv3.Client, secured *tls.Config, server string) error {
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	if err := handshake(ctx, secured, server); err != nil {
		return fmt.Errorf("the etcd server %s cannot be used: %w", server, err)
	}
	status, err := client.Status(ctx, server)
	if err != nil {
		return fmt.Errorf("the etcd server %s does not answer: %w", server, kv.OneLine(err))
	}
	v, err := version.ParseSemantic(status.Version)
	if err != nil {
		return fmt.Errorf("the etcd server %s has the version %q, which is none", server, status.Version)
	}
	if v.LessThan(version.MustParseSemantic("3.4.31")) || v.AtLeast(version.MustParseSemantic("3.5.0")) &&
		v.LessThan(version.MustParseSemantic("3.5.13")) {
		return &lackError{fmt.Sprintf("the etcd server %s is of version %s, which may tell a watch that it is up to date "+
			"when it is not", server, status.Version)}
	}
	return nil
}

// handshake speaks TLS with a server, to say in plain words what is wrong with it: later
// the reason is lost in attempts that end with their time.
func handshake(ctx context.Context, secured *tls.Config, server string) error {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" {
		return errors.New("it is no URL such as https://etcd-1:2379")
	}
	if (u.Scheme == "https") != (secured != nil) && u.Scheme != "https" {
		return errors.New("files for TLS are given, and its URL is not https://")
	}
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return err
	}
	defer connection.Close()
	if u.Scheme != "https" {
		return nil
	}
	if secured == nil {
		secured = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	secured = secured.Clone()
	secured.ServerName, secured.NextProtos = u.Hostname(), []string{"h2"}
	encrypted := tls.Client(connection, secured)
	if err := encrypted.HandshakeContext(ctx); err != nil {
		return plainTLS(err)
	}
	// With TLS 1.3 a server says afterwards what it thinks of a certificate.
	if deadline, ok := ctx.Deadline(); ok {
		_ = encrypted.SetDeadline(deadline)
	}
	if _, err := bufio.NewReader(encrypted).ReadByte(); err != nil {
		return plainTLS(err)
	}
	return nil
}

func plainTLS(err error) error {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var alert tls.AlertError
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("its certificate is not of the CA in --etcd-cafile: %w", err)
	case errors.As(err, &name):
		return fmt.Errorf("its certificate is for other names: %w", err)
	case errors.As(err, &alert), strings.Contains(err.Error(), "remote error: tls:"):
		return fmt.Errorf("it does not take the certificate of --etcd-certfile, or wants one: %w", err)
	}
	return fmt.Errorf("speak TLS: %w", err)
}

// probeMajority makes sure that what is written would be kept.
func probeMajority(ctx context.Context, client *clientv3.Client, prefix string) error {
	ctx, cancel := context.WithTimeout(ctx, majorityPatience)
	defer cancel()
	_, err := client.Get(ctx, prefix+"/", clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly())
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("etcd has no leader: the majority of its members does not work together (%w); see etcdctl "+
			"endpoint status --cluster", kv.OneLine(err))
	}
	return fmt.Errorf("read from etcd below %s: %w", prefix, kv.OneLine(err))
}

// probeFeatures tries what the API relies on, whatever the version says. Nothing is
// written but a lease that is given back.
func probeFeatures(ctx context.Context, client *clientv3.Client, prefix string) error {
	ctx, cancel := context.WithTimeout(ctx, majorityPatience)
	defer cancel()
	nothing := prefix + "/probe"
	inner := clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(nothing), "=", 0)},
		[]clientv3.Op{clientv3.OpGet(nothing)}, nil)
	if _, err := client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(nothing), "=",
		0)).Then(inner).Else(clientv3.OpGet(nothing)).Commit(); err != nil {
		return lacks(ctx, "transactions in transactions", err)
	}
	lease, err := client.Grant(ctx, probeLease)
	if err == nil {
		_, err = client.Revoke(ctx, lease.ID)
	}
	if err != nil {
		return lacks(ctx, "leases, which events end with", err)
	}
	watching, stop := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer stop()
	watch := client.Watch(watching, nothing, clientv3.WithCreatedNotify())
	asked := false
	for answer := range watch {
		switch {
		case answer.Err() != nil:
			return lacks(ctx, "watches", answer.Err())
		case answer.IsProgressNotify():
			return nil
		case !asked:
			asked = true
			if err := client.RequestProgress(watching); err != nil {
				return lacks(ctx, "progress of watches on request", err)
			}
		}
	}
	return &lackError{"etcd does not tell the progress of watches on request"}
}

func lacks(_ context.Context, what string, err error) error {
	if strings.Contains(err.Error(), "permission denied") {
		return fmt.Errorf("etcd does not allow %s to this user: %w; give the user of --etcd-certfile all rights below "+
			"--etcd-prefix", what, kv.OneLine(err))
	}
	return &lackError{fmt.Sprintf("etcd lacks %s (%v)", what, kv.OneLine(err))}
}
