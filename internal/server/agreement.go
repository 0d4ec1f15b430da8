package server

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

	"github.com/everynode/everynode/internal/apiserver"
	"github.com/everynode/everynode/internal/etcd"
	"github.com/everynode/everynode/internal/etcd/kv"
	"github.com/everynode/everynode/internal/members"
	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/server/sharedkeys"
	"github.com/everynode/everynode/internal/wholefile"
)

// agreedFile remembers, for a server on an etcd of others, the digest of the keys that it had
// in common with the other servers.
const agreedFile = "agreed-keys"

// externalInterval is how often such a server looks whether keys were replaced. Nobody brings
// it those of the others, so nothing is gained by haste.
const externalInterval = 10 * time.Second

// errOtherKeys says that a server may not take part with what it has.
var errOtherKeys = errors.New("keys here differ from those of the other servers on this etcd")

// errDisagree says that a server is configured otherwise than the others.
var errDisagree = errors.New("this server is configured otherwise than the others on this etcd")

// externalKeys are what this server knows of the keys that it shares with the others. Those of
// stored Secrets are not among them: their witness in the database tells.
func (s *Server) externalKeys() (members.KeysHere, error) {
	cluster, err := pki.ExportCluster(filepath.Join(s.options.DataDir, "pki"))
	if err != nil {
		return members.KeysHere{}, err
	}
	if !pki.ClusterWhole(cluster) {
		return members.KeysHere{}, sharedkeys.ErrHalf
	}
	remembered, err := os.ReadFile(filepath.Join(s.options.DataDir, agreedFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return members.KeysHere{}, fmt.Errorf("read which keys all servers have: %w", err)
	}
	return members.KeysHere{Own: sharedkeys.Set{Cluster: cluster}.Hash(), Agreed: string(remembered)}, nil
}

// checkAgreement refuses a server whose keys or networks are others than those of the servers
// that use the same etcd. It writes nothing.
func (s *Server) checkAgreement(ctx context.Context) error {
	here, err := s.externalKeys()
	if err != nil {
		return err
	}
	all, _, err := s.external.Agreed(ctx)
	if err != nil {
		return err
	}
	if err := s.mayAgree(here, all); err != nil {
		return err
	}
	text, _, err := s.external.Settings(ctx)
	if err != nil || text == "" {
		return err
	}
	_, err = s.mergeSettings(text)
	return err
}

func (s *Server) mayAgree(here members.KeysHere, all string) error {
	if d := here.Decide(all); d == members.Take || d == members.Dispute {
		return fmt.Errorf("%w: copy pki/ca*, pki/node-ca*, pki/service-account*, pki/front-proxy-ca* and encryption.yaml to %s from another server of the cluster, "+
			"or, if this is to be another cluster, choose another --etcd-prefix", errOtherKeys, s.options.DataDir)
	}
	return nil
}

// agree writes down what this server has, where nobody has before it.
func (s *Server) agree(ctx context.Context) error {
	if err := s.followExternalKeysOnce(ctx); err != nil {
		return err
	}
	return agreeOn(ctx, s.external.Settings, s.mergeSettings, s.external.SetSettings)
}

const (
	// agreeAttempts bounds how often a server tries again because another one was quicker, or
	// because the database had a bad moment; agreePause is what it waits after such a moment.
	agreeAttempts = 10
	agreePause    = 500 * time.Millisecond
)

// agreeOn has what this server decides written down, unless it is already. Servers may start at the same time: one that was not
// quick enough decides again, with what the other wrote.
func agreeOn(ctx context.Context, read func(context.Context) (string, int64, error), decide func(all string) (string, error),
	write func(context.Context, string, int64) (bool, error)) error {
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
			sleep(ctx, agreePause) // the next look reports whether it was written
			continue
		}
		if done || err != nil {
			return err
		}
	}
	return errors.New("agree with the other servers on this etcd: other servers write it again and again; start this one again")
}

// mergeSettings compares how this server is configured with what all are; the network of pods
// may grow. It returns what all are to have from now on.
func (s *Server) mergeSettings(text string) (string, error) {
	own := members.Settings{ServiceCIDR: s.service.String(), ClusterCIDR: s.pods.Cluster.String(), NodeMaskSize: s.pods.NodeBits}
	var all members.Settings
	if text == "" {
		all = own
	} else if err := json.Unmarshal([]byte(text), &all); err != nil {
		return "", fmt.Errorf("read how the servers on this etcd are configured: %w", err)
	}
	if own.ServiceCIDR != all.ServiceCIDR {
		return "", fmt.Errorf("%w: start it with --service-cidr %s", errDisagree, all.ServiceCIDR)
	}
	if own.NodeMaskSize != all.NodeMaskSize {
		return "", fmt.Errorf("%w: start it with --node-cidr-mask-size %d", errDisagree, all.NodeMaskSize)
	}
	before, err := netip.ParsePrefix(all.ClusterCIDR)
	if err != nil {
		return "", fmt.Errorf("read how the servers on this etcd are configured: %w", err)
	}
	if now := s.pods.Cluster; now.Bits() > before.Bits() || !now.Contains(before.Addr()) {
		return "", fmt.Errorf("%w: start it with --cluster-cidr %s", errDisagree, all.ClusterCIDR)
	}
	if own == all && text != "" {
		return text, nil
	}
	merged, err := json.Marshal(own)
	return string(merged), err
}

// followExternalKeys tells, until ctx ends, the other servers of keys that are replaced here,
// and says when others have replaced them.
func (s *Server) followExternalKeys(ctx context.Context) error {
	said := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(externalInterval):
		}
		attempt, cancel := context.WithTimeout(ctx, sharedkeys.Patience)
		err := s.followExternalKeysOnce(attempt)
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

func (s *Server) followExternalKeysOnce(ctx context.Context) error {
	here, err := s.externalKeys()
	if err != nil {
		return err
	}
	decision := members.Rest
	err = agreeOn(ctx, s.external.Agreed, func(all string) (string, error) {
		if decision = here.Decide(all); decision == members.Publish {
			return here.Own, nil
		}
		return all, s.mayAgree(here, all)
	}, s.external.Agree)
	if err != nil || decision == members.Rest {
		return err
	}
	if decision == members.Publish && here.Agreed != "" {
		klog.FromContext(ctx).Info("Keys were replaced on this server; copy them to the others")
	}
	return wholefile.Write(filepath.Join(s.options.DataDir, agreedFile), 0o600, wholefile.Bytes([]byte(here.Own)))
}

// makeAPI makes the API server, which reads the database.
func (s *Server) makeAPI(ctx context.Context, config apiserver.Config) (err error) {
	if s.etcd == nil {
		s.api, err = apiserver.New(config)
		if err != nil {
			return err
		}
		return s.agree(ctx)
	}
	return s.etcd.During(func() (err error) {
		s.restored, err = s.etcd.Restored(ctx)
		if err != nil {
			return err
		}
		config.Restored = s.restored
		s.api, err = apiserver.New(config)
		return err
	})
}

func (s *Server) watchDatabase(ctx context.Context) error {
	err := s.etcd.Failed(ctx)
	if err == nil || errors.Is(err, etcd.ErrRemoved) {
		return err
	}
	return fmt.Errorf("the database in %s stopped: %w", s.options.DataDir, err)
}

// databaseLost is closed when an embedded database cannot go on.
func (s *Server) databaseLost() <-chan struct{} {
	if s.etcd == nil {
		return nil
	}
	return s.etcd.Lost()
}
