package pki

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/pki/keyfile"
)

// ServiceAccounts names the key of service account tokens, as one that can be
// replaced like an authority.
const ServiceAccounts = "service-account"

// Rotate replaces an authority or the key of service account tokens. The old one is
// trusted beside the new one until Finish. With the cluster's authority the keys of
// the server's own certificates are replaced, too.
func Rotate(dir, which string, now time.Time) error {
	return change(dir, now, func(s *state) ([]step, error) { return planRotation(s, which, now) })
}

func planRotation(s *state, which string, now time.Time) ([]step, error) {
	switch which {
	case ClusterAuthority:
		steps, next, err := rotateAuthority(s.cluster, now)
		if err != nil {
			return nil, err
		}
		renewed, err := renewLeaves(s, next, leaves, now)
		return append(steps, renewed...), err
	case NodeAuthority:
		steps, _, err := rotateAuthority(s.nodes, now)
		return steps, err
	}
	return rotateAccounts(s.accounts, now)
}

// Finish ends the trust in what Rotate replaced.
func Finish(dir, which string, now time.Time) error {
	return change(dir, now, func(s *state) ([]step, error) {
		previous := map[string]int{
			ClusterAuthority: len(s.cluster.previous),
			NodeAuthority:    len(s.nodes.previous),
			ServiceAccounts:  len(s.accounts.previous),
		}
		switch {
		case previous[which] == 0:
			return nil, fmt.Errorf("%s is not being replaced: there is nothing to finish", which)
		case which == ServiceAccounts:
			return []step{{remove: serviceAccountPrevious}}, nil
		case which == NodeAuthority:
			return []step{{remove: previousFile("", which)}}, nil
		}
		// What the old authority signed must not be all that the server has.
		var old []string
		for _, name := range leaves {
			if s.leaves[name].cert.CheckSignatureFrom(s.cluster.cert) != nil {
				old = append(old, name)
			}
		}
		steps, err := renewLeaves(s, s.cluster, old, now)
		return append(steps, step{remove: previousFile("", which)}), err
	})
}

// Renew issues certificates of the server again, with new keys.
func Renew(dir string, names []string, now time.Time) error {
	for _, name := range names {
		if !slices.Contains(leaves, name) {
			return fmt.Errorf("%q is not a certificate of the server; there are %s", name, strings.Join(leaves, ", "))
		}
	}
	if len(names) == 0 {
		names = leaves
	}
	return change(dir, now, func(s *state) ([]step, error) { return renewLeaves(s, s.cluster, names, now) })
}

// change does what plan wants with the directory, and brings the files of the
// server's certificates up to date with it.
func change(dir string, now time.Time, plan func(*state) ([]step, error)) error {
	unlock, err := lockDirectory(dir)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := readState(dir, now)
	if err != nil {
		return err
	}
	steps, err := plan(s)
	if err != nil {
		return err
	}
	if err := applyAll(dir, steps); err != nil {
		return err
	}
	if s, err = readState(dir, now); err != nil {
		return err
	}
	for _, name := range leaves {
		p := s.leaves[name]
		p.chain = s.cluster.chain()
		if err := p.write(dir, name); err != nil {
			return err
		}
	}
	return nil
}

// readState reads a directory that a server has filled, whatever its server's
// options are.
func readState(dir string, now time.Time) (*state, error) {
	if err := settle(dir); err != nil {
		return nil, err
	}
	s := &state{leaves: map[string]*pair{}}
	var err error
	s.cluster, err = loadAuthority(dir, ClusterAuthority, authorityRemedy, now)
	if err != nil {
		return nil, err
	}
	s.nodes, err = loadAuthority(dir, NodeAuthority, nodeAuthorityRemedy, now)
	if err != nil {
		return nil, err
	}
	for _, name := range leaves {
		s.leaves[name], err = readLeaf(dir, name)
		if err != nil {
			return nil, err
		}
		if s.cluster == nil || s.nodes == nil || s.leaves[name] == nil {
			return nil, fmt.Errorf(
				"%s does not hold all keys of a control plane: start its server once, or name the right --data-dir", dir,
			)
		}
		if err := s.cluster.signed(s.leaves[name].cert); err != nil {
			return nil, keyfile.Because(
				filepath.Join(dir, name+".crt"), fmt.Errorf("was not issued by the CA in this directory: %w", err),
				leafRemedy(name),
			)
		}
	}
	s.accounts, err = loadOrCreateAccounts(dir)
	return s, err
}

func rotateAuthority(a *authority, now time.Time) ([]step, *authority, error) {
	if len(a.previous) > 0 {
		return nil, nil, fmt.Errorf("%s is being replaced already: finish that first, with --finish", a.name)
	}
	key, err := keyfile.NewKey()
	if err != nil {
		return nil, nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, nil, err
	}
	base := map[string]string{
		ClusterAuthority: clusterAuthorityName,
		NodeAuthority:    nodeAuthorityName,
		PeerAuthority:    peerAuthorityName,
	}[a.name]
	cert, err := newAuthority(key, base+"-"+hex.EncodeToString(serial.Bytes()[:4]), now)
	if err != nil {
		return nil, nil, err
	}
	cross, err := crossSign(a, cert)
	if err != nil {
		return nil, nil, err
	}
	encoded, err := keyfile.KeyPEM(key)
	if err != nil {
		return nil, nil, err
	}
	previous := []*x509.Certificate{a.cert, cross}
	steps := append([]step{{write: previousFile("", a.name), data: certificatesPEM(previous)}}, replacePair(
		a.name, keyfile.CertificatePEM(cert), encoded,
	)...)
	return steps, &authority{name: a.name, cert: cert, key: key, previous: previous[:1], crosses: previous[1:]}, nil
}

// crossSign lets an authority certify the key of its successor: who trusts the old
// one then trusts what the new one signs, as long as the server shows this.
func crossSign(by *authority, next *x509.Certificate) (*x509.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: next.Subject, SubjectKeyId: next.SubjectKeyId,
		NotBefore: next.NotBefore, NotAfter: next.NotAfter, KeyUsage: next.KeyUsage, BasicConstraintsValid: true, IsCA: true,
	}
	if template.NotAfter.After(by.cert.NotAfter) {
		template.NotAfter = by.cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, next.PublicKey, by.key)
	if err != nil {
		return nil, fmt.Errorf("let the old authority certify the new one: %w", err)
	}
	return x509.ParseCertificate(der)
}

func renewLeaves(s *state, by *authority, names []string, now time.Time) (steps []step, err error) {
	signer := &Signer{authority: func() *authority { return by }, clock: fixedClock(now)}
	for _, name := range names {
		key, err := keyfile.NewKey()
		if err != nil {
			return nil, err
		}
		template := templateOf(s.leaves[name].cert)
		template.TTL = leafLifetime
		cert, err := signer.issue(&key.PublicKey, template)
		if err != nil {
			return nil, err
		}
		encoded, err := keyfile.KeyPEM(key)
		if err != nil {
			return nil, err
		}
		steps = append(
			steps, replacePair(name, certificatesPEM(append([]*x509.Certificate{cert}, by.chain()...)), encoded)...,
		)
	}
	return steps, nil
}

// fixedClock stands still.
type fixedClock time.Time

var _ clock.PassiveClock = fixedClock{}

// Now implements clock.PassiveClock.
func (c fixedClock) Now() time.Time { return time.Time(c) }

// Since implements clock.PassiveClock.
func (c fixedClock) Since(t time.Time) time.Duration { return time.Time(c).Sub(t) }

func rotateAccounts(keys *accountKeys, now time.Time) ([]step, error) {
	if len(keys.previous) > 0 {
		return nil, errors.New(
			"the key of service account tokens is being replaced already: finish that first, with --finish",
		)
	}
	var key *ecdsa.PrivateKey
	key, err := keyfile.NewKey()
	if err != nil {
		return nil, err
	}
	encoded, err := keyfile.KeyPEM(key)
	if err != nil {
		return nil, err
	}
	previous, err := previousKeysPEM([]previousKey{{public: &keys.signing.PublicKey, replaced: now}})
	if err != nil {
		return nil, err
	}
	return []step{
		{write: serviceAccountPrevious, data: previous},
		{write: serviceAccountNext, data: encoded},
		{rename: serviceAccountNext, to: serviceAccountKey},
	}, nil
}
