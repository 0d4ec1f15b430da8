// Package agreement has servers that keep their data in an etcd of others agree on what all of them must have alike:
// the keys of the cluster, and the networks. What they agreed on is written in that etcd.
package agreement

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/files/wholefile"
	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/server/sharedkeys"
	"github.com/everynode/everynode/internal/storage/etcd/external"
	"github.com/everynode/everynode/internal/storage/etcd/kv"
	"github.com/everynode/everynode/internal/storage/members"
)

// agreedFile remembers, for a server on an etcd of others, the digest of the keys that it had
// in common with the other servers.
const agreedFile = "agreed-keys"

// interval is how often such a server looks whether keys were replaced. Nobody brings
// it those of the others, so nothing is gained by haste.
const interval = 10 * time.Second

// errOtherKeys says that a server may not take part with what it has.
var errOtherKeys = errors.New("keys here differ from those of the other servers on this etcd")

// errDisagree says that a server is configured otherwise than the others.
var errDisagree = errors.New("this server is configured otherwise than the others on this etcd")

// Agreement is what one server agrees on with the others.
type Agreement struct {
	dataDir string
	own     members.Settings
	pods    netip.Prefix
	etcd    *external.Etcd
}

// New returns the agreement of a server with this data folder, these settings and this network of pods with the others
// on this etcd.
func New(dataDir string, own members.Settings, pods netip.Prefix, etcd *external.Etcd) *Agreement {
	return &Agreement{dataDir: dataDir, own: own, pods: pods, etcd: etcd}
}

// keysHere are what this server knows of the keys that it shares with the others. Those of
// stored Secrets are not among them: their witness in the database tells.
func (a *Agreement) keysHere() (members.KeysHere, error) {
	cluster, err := pki.ExportCluster(filepath.Join(a.dataDir, "pki"))
	if err != nil {
		return members.KeysHere{}, err
	}
	if !pki.ClusterWhole(cluster) {
		return members.KeysHere{}, sharedkeys.ErrHalf
	}
	remembered, err := os.ReadFile(filepath.Join(a.dataDir, agreedFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return members.KeysHere{}, fmt.Errorf("read which keys all servers have: %w", err)
	}
	return members.KeysHere{Own: sharedkeys.Set{Cluster: cluster}.Hash(), Agreed: string(remembered)}, nil
}

// Check refuses a server whose keys or networks are others than those of the servers
// that use the same etcd. It writes nothing.
func (a *Agreement) Check(ctx context.Context) error {
	here, err := a.keysHere()
	if err != nil {
		return err
	}
	all, _, err := a.etcd.Agreed(ctx)
	if err != nil {
		return err
	}
	if err := a.mayAgree(here, all); err != nil {
		return err
	}
	text, _, err := a.etcd.Settings(ctx)
	if err != nil || text == "" {
		return err
	}
	_, err = a.mergeSettings(text)
	return err
}

func (a *Agreement) mayAgree(here members.KeysHere, all string) error {
	if d := here.Decide(all); d == members.Take || d == members.Dispute {
		return fmt.Errorf(
			"%w: copy pki/ca*, pki/node-ca*, pki/service-account*, pki/front-proxy-ca* and encryption.yaml to %s from another "+
				"server of the cluster, or, if this is to be another cluster, choose another --etcd-prefix",
			errOtherKeys, a.dataDir,
		)
	}
	return nil
}

// Agree writes down what this server has, where nobody has before it.
func (a *Agreement) Agree(ctx context.Context) error {
	if err := a.look(ctx); err != nil {
		return err
	}
	return agreeOn(ctx, a.etcd.Settings, a.mergeSettings, a.etcd.SetSettings)
}

const (
	// agreeAttempts bounds how often a server tries again because another one was quicker, or
	// because the database had a bad moment; agreePause is what it waits after such a moment.
	agreeAttempts = 10
	agreePause    = 500 * time.Millisecond
)

// agreeOn has what this server decides written down, unless it is already. Servers may start at the same time: one that
// was not quick enough decides again, with what the other wrote.
func agreeOn(
	ctx context.Context,
	read func(context.Context) (string, int64, error),
	decide func(all string) (string, error),
	write func(context.Context, string, int64) (bool, error),
) error {
	for range agreeAttempts {
		all, revision, err := read(ctx)
		if err != nil {
			return err
		}
		own, err := decide(all)
		if err != nil || own == all {
			return err
		}
		done, err := write(ctx, own, revision)
		if kv.Passes(err) && ctx.Err() == nil {
			select { // the next look reports whether it was written
			case <-ctx.Done():
			case <-time.After(agreePause):
			}
			continue
		}
		if done || err != nil {
			return err
		}
	}
	return errors.New(
		"agree with the other servers on this etcd: other servers write it again and again; start this one again",
	)
}

// mergeSettings compares how this server is configured with what all are; the network of pods
// may grow. It returns what all are to have from now on.
func (a *Agreement) mergeSettings(text string) (string, error) {
	var all members.Settings
	if text == "" {
		all = a.own
	} else if err := json.Unmarshal([]byte(text), &all); err != nil {
		return "", fmt.Errorf("read how the servers on this etcd are configured: %w", err)
	}
	if a.own.ServiceCIDR != all.ServiceCIDR {
		return "", fmt.Errorf("%w: start it with --service-cidr %s", errDisagree, all.ServiceCIDR)
	}
	if a.own.NodeMaskSize != all.NodeMaskSize {
		return "", fmt.Errorf("%w: start it with --node-cidr-mask-size %d", errDisagree, all.NodeMaskSize)
	}
	before, err := netip.ParsePrefix(all.ClusterCIDR)
	if err != nil {
		return "", fmt.Errorf("read how the servers on this etcd are configured: %w", err)
	}
	if now := a.pods; now.Bits() > before.Bits() || !now.Contains(before.Addr()) {
		return "", fmt.Errorf("%w: start it with --cluster-cidr %s", errDisagree, all.ClusterCIDR)
	}
	if a.own == all && text != "" {
		return text, nil
	}
	merged, err := json.Marshal(a.own)
	return string(merged), err
}

// Follow tells, until ctx ends, the other servers of keys that are replaced here,
// and says when others have replaced them.
func (a *Agreement) Follow(ctx context.Context) error {
	said := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval):
		}
		attempt, cancel := context.WithTimeout(ctx, sharedkeys.Patience)
		err := a.look(attempt)
		cancel()
		switch {
		case err == nil || ctx.Err() != nil || errors.Is(err, sharedkeys.ErrHalf): // the next look sees all of them
			said = ""
		case err.Error() != said:
			said = err.Error()
			klog.FromContext(ctx).Error(err, "This server may have other keys than the others")
		}
	}
}

func (a *Agreement) look(ctx context.Context) error {
	here, err := a.keysHere()
	if err != nil {
		return err
	}
	decision := members.Rest
	err = agreeOn(ctx, a.etcd.Agreed, func(all string) (string, error) {
		if decision = here.Decide(all); decision == members.Publish {
			return here.Own, nil
		}
		return all, a.mayAgree(here, all)
	}, a.etcd.Agree)
	if err != nil || decision == members.Rest {
		return err
	}
	if decision == members.Publish && here.Agreed != "" {
		klog.FromContext(ctx).Info("Keys were replaced on this server; copy them to the others")
	}
	return wholefile.Write(filepath.Join(a.dataDir, agreedFile), 0o600, wholefile.Bytes([]byte(here.Own)))
}
