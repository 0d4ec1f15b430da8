package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/encryption"
	"github.com/everynode/everynode/internal/etcd"
	"github.com/everynode/everynode/internal/members"
	"github.com/everynode/everynode/internal/pki"
)

// keysInterval is how often a server looks whether keys were replaced, here or elsewhere;
// keysPatience bounds one look.
const (
	keysInterval = time.Second
	keysPatience = 10 * time.Second
)

// sharedKeys is what each server has alike: authorities, the key of service account tokens,
// and the keys of stored Secrets.
type sharedKeys struct {
	Cluster map[string][]byte
	Stored  []byte `json:",omitempty"`
}

// errHalf says that somebody is just replacing files by hand.
var errHalf = errors.New("not all keys are there")

// errDamaged says that this server would not start with its keys. The others have good ones.
var errDamaged = errors.New("keys of this server cannot be used, and the others do not take them; copy the file from another server, or restore it from a backup")

// check says what is wrong with the keys themselves.
func (k sharedKeys) check() error {
	if err := pki.CheckCluster(k.Cluster); err != nil {
		return err
	}
	if len(k.Stored) == 0 {
		return nil
	}
	if _, err := encryption.Decode(k.Stored); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(encryption.File("")), err)
	}
	return nil
}

func exportKeys(dataDir string) ([]byte, error) {
	var keys sharedKeys
	var err error
	if keys.Cluster, err = pki.ExportCluster(filepath.Join(dataDir, "pki")); err != nil {
		return nil, err
	}
	if !pki.ClusterWhole(keys.Cluster) {
		return nil, errHalf
	}
	if keys.Stored, err = encryption.Read(encryption.File(dataDir)); err != nil {
		return nil, err
	}
	if err := keys.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return json.Marshal(keys)
}

// hash is what servers compare. It is over the files that servers of every version know, and
// over their content only: one of the next version, which may have more, tells the same. It
// must stay as it is; what it leaves out needs an agreement of its own.
func (k sharedKeys) hash() string {
	compared := sharedKeys{Cluster: map[string][]byte{}, Stored: k.Stored}
	for _, name := range pki.AgreedFiles {
		if content, ok := k.Cluster[name]; ok {
			compared.Cluster[name] = content
		}
	}
	content, _ := json.Marshal(compared) // it cannot fail: bytes by names
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// hashKeys is the hash of keys as they are sent; that of none if they cannot be read.
func hashKeys(content []byte) string {
	var keys sharedKeys
	if err := json.Unmarshal(content, &keys); err != nil {
		keys = sharedKeys{}
	}
	return keys.hash()
}

// follows has all servers have a set of files alike.
type follows struct {
	which etcd.Shared
	// export reads what this server has. It fails with errHalf while somebody replaces files by
	// hand, and with errDamaged if the server would not start with them.
	export func() ([]byte, error)
	// hash is what servers compare.
	hash func(content []byte) string
	// check says what is wrong with files of another server, and adopt puts them in the place of
	// those of this one.
	check, adopt func(content []byte) error
	// memory is where this server keeps what it knows: the hash that all had, and that which it
	// began to take.
	memory func(*membership) (agreed, begun *string)
	// replacedHere and took are for the log.
	replacedHere, took string
	// byHand says what to do when files were replaced on two servers.
	byHand string
}

// clusterKeys are authorities, the key of service account tokens, and the keys of stored Secrets.
func (s *Server) clusterKeys() follows {
	return follows{
		which: etcd.ClusterKeys, export: func() ([]byte, error) { return exportKeys(s.options.DataDir) }, hash: hashKeys,
		check: checkKeys, adopt: s.adoptKeys,
		memory:       func(m *membership) (agreed, begun *string) { return &m.AgreedKeys, &m.BegunKeys },
		replacedHere: "Keys were replaced on this server; the others take them",
		took:         "Took the keys that were replaced on another server",
		byHand: fmt.Sprintf("keys were replaced on two servers at once: copy pki/ca*, pki/node-ca*, pki/service-account*, pki/front-proxy-ca* and encryption.yaml "+
			"to %s from the server whose keys are to count", s.options.DataDir),
	}
}

// follow has this server have what all have, until ctx ends: what is replaced on one, the others
// take from it, over the connection between their databases. look is one look.
func (s *Server) follow(ctx context.Context, look func(context.Context) error) error {
	said := ""
	for {
		attempt, cancel := context.WithTimeout(ctx, keysPatience)
		err := look(attempt)
		cancel()
		switch {
		case err == nil || ctx.Err() != nil:
			said = ""
		case err.Error() != said:
			said = err.Error()
			klog.FromContext(ctx).Error(err, "This server may have other keys than the others")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(keysInterval):
		}
	}
}

func (s *Server) followKeys(ctx context.Context) error { return s.follow(ctx, s.followKeysOnce) }

func (s *Server) followKeysOnce(ctx context.Context) error { return s.followOnce(ctx, s.clusterKeys()) }

func (s *Server) followOnce(ctx context.Context, f follows) error {
	content, err := f.export()
	s.changing.Lock()
	_, remembered := f.memory(s.membership)
	begun := *remembered != ""
	s.changing.Unlock()
	switch half := errors.Is(err, errHalf); {
	case err == nil, begun && (half || errors.Is(err, errDamaged)): // those that it began to take come anew
	case half:
		return nil // the next look sees all of them
	default:
		return err
	}
	all, revision, err := s.etcd.Agreed(ctx, f.which)
	if err != nil {
		return err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	atHand, taking := f.memory(s.membership)
	here := members.KeysHere{Own: f.hash(content), Agreed: *atHand, Begun: *taking}
	switch here.Decide(all) {
	case members.Note:
		return s.note(f, all, "")
	case members.Publish:
		if done, err := s.etcd.Agree(ctx, f.which, here.Own, revision); err != nil || !done {
			return err
		}
		if here.Agreed != "" {
			klog.FromContext(ctx).Info(f.replacedHere)
		}
		return s.note(f, here.Own, "")
	case members.Take:
		return s.unlessLost(ctx, f, here, all, revision, s.takeShared(ctx, f, here, all))
	case members.Dispute:
		err := s.etcd.AskShared(ctx, f.which, func(content []byte) (bool, error) { return f.hash(content) == all, nil })
		if !errors.Is(err, etcd.ErrNobodyHas) {
			err = nil
		}
		return s.unlessLost(ctx, f, here, all, revision, cmp.Or(err, errors.New(f.byHand)))
	}
	return nil
}

// lostAfter is for how long nobody may have what all are to have before that is given up. One
// that replaces files one after another has, for seconds, others than it has told.
const lostAfter = time.Minute

// patienceOf is how long a server waits. One that was cut off while it took what nobody has may have
// some of the one and some of the other: those that were not come first.
func patienceOf(here members.KeysHere) time.Duration {
	if here.Begun != "" {
		return 2 * lostAfter
	}
	return lostAfter
}

// unlessLost has all servers have what this one has, where nobody has what was told last: who told
// it is gone, with its disk. Before, every server that belongs to the cluster must have answered
// for a while.
func (s *Server) unlessLost(ctx context.Context, f follows, here members.KeysHere, all string, revision int64, err error) error {
	if !errors.Is(err, etcd.ErrNobodyHas) {
		delete(s.nobodyHas, f.which)
		return err
	}
	missed := s.nobodyHas[f.which]
	if missed.what != all {
		missed = missing{all, time.Now()}
		if s.nobodyHas == nil {
			s.nobodyHas = map[etcd.Shared]missing{}
		}
		s.nobodyHas[f.which] = missed
	}
	if patience := patienceOf(here); time.Since(missed.since) < patience {
		return fmt.Errorf("%w; if that stays so for %v, those of this server count", err, patience)
	}
	if _, unusable := f.export(); unusable != nil {
		return fmt.Errorf("%w, and those of this server cannot be used: restore %s from a backup: %w", err, s.options.DataDir, unusable)
	}
	if done, err := s.etcd.Agree(ctx, f.which, here.Own, revision); err != nil || !done {
		return err
	}
	klog.FromContext(ctx).Info("The server that replaced keys last is gone, and no other has them: those of this server count", "keys", f.which)
	return s.note(f, here.Own, "")
}

// missing is what nobody has, and since when.
type missing struct {
	what  string
	since time.Time
}

// takeShared replaces the files of this server. The caller holds changing.
func (s *Server) takeShared(ctx context.Context, f follows, here members.KeysHere, all string) error {
	return s.etcd.AskShared(ctx, f.which, func(content []byte) (bool, error) {
		if f.hash(content) != all {
			return false, nil // another that has not got them yet
		}
		if err := f.check(content); err != nil {
			return false, fmt.Errorf("the keys of another server cannot be used, and are not taken: %w", err)
		}
		if err := s.note(f, here.Agreed, all); err != nil {
			return false, err
		}
		if err := f.adopt(content); err != nil {
			return false, err
		}
		klog.FromContext(ctx).Info(f.took)
		return true, s.note(f, all, "")
	})
}

// note writes down what this server knows of the files. The caller holds changing.
func (s *Server) note(f follows, agreed, begun string) error {
	if s.leaving.Load() {
		return nil
	}
	atHand, taking := f.memory(s.membership)
	*atHand, *taking = agreed, begun
	next := *s.membership
	next.Known = s.known()
	return next.write(s.options.DataDir)
}

func checkKeys(content []byte) error {
	var keys sharedKeys
	if err := json.Unmarshal(content, &keys); err != nil {
		return fmt.Errorf("read the keys of another server: %w", err)
	}
	return keys.check()
}

// adoptKeys puts the keys of another server in the place of those of this one.
func (s *Server) adoptKeys(content []byte) error {
	var keys sharedKeys
	if err := json.Unmarshal(content, &keys); err != nil {
		return fmt.Errorf("read the keys of another server: %w", err)
	}
	if len(keys.Stored) > 0 {
		if err := encryption.WriteEncoded(encryption.File(s.options.DataDir), keys.Stored); err != nil {
			return err
		}
	}
	if err := pki.AdoptCluster(filepath.Join(s.options.DataDir, "pki"), keys.Cluster, time.Now()); err != nil {
		return err
	}
	return s.pki.Reload()
}
