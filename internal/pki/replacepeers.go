package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/pki/keyfile"
)

const (
	// peerTrusted holds all authorities whose certificates a database takes.
	peerTrusted = "peer-trusted.crt"
	// peerCross is the certificate of the authority's key by the one before. It outlives the
	// trust in that one: a server that has not begun again since goes by it.
	peerCross = PeerAuthority + "-cross.crt"
)

var errNoPeers = errors.New("this server's database speaks to no other: there is nothing to replace")

// loadPeers reads the authority of the databases; nil when there is none. The directory must
// be locked.
func loadPeers(dir string, now time.Time) (*authority, error) {
	steps, err := settlePair(dir, PeerAuthority)
	if err == nil {
		err = applyAll(dir, steps)
	}
	if err != nil {
		return nil, err
	}
	a, err := loadAuthority(dir, PeerAuthority, peerRemedy, now)
	if err != nil || a == nil {
		return nil, err
	}
	path := filepath.Join(dir, peerCross)
	crosses, err := keyfile.ReadCertificates(path)
	if err != nil {
		return nil, keyfile.Because(path, err, "remove it: it is needed for a moment after a replacement only")
	}
	for _, cross := range crosses {
		if a.key.PublicKey.Equal(cross.PublicKey) && !slices.ContainsFunc(a.crosses, cross.Equal) {
			a.crosses = append(a.crosses, cross)
		}
	}
	return a, nil
}

// peerRoots are the authorities whose certificates a database takes, as the files are now.
func peerRoots(dir string) ([]*x509.Certificate, error) {
	roots, err := keyfile.ReadCertificates(filepath.Join(dir, PeerAuthority+".crt"))
	if err == nil && len(roots) == 0 {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("%s.crt: %w", PeerAuthority, err)
	}
	previous, err := keyfile.ReadCertificates(previousFile(dir, PeerAuthority))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", previousFile("", PeerAuthority), err)
	}
	for _, p := range previous {
		if p.CheckSignatureFrom(p) == nil {
			roots = append(roots, p)
		}
	}
	return roots, nil
}

// PeerStanding is how a server stands with the authority of the databases.
type PeerStanding struct {
	// Authority is the hash of the one that signed what this server shows now.
	Authority string
	// Replacing tells that the one before is trusted beside it.
	Replacing bool
	// Outdated tells that it takes certificates of an authority that is trusted no more,
	// until it begins again.
	Outdated bool
}

// Standing tells it, as the files are now.
func (p *Peers) Standing() (out PeerStanding, err error) {
	roots, err := peerRoots(p.dir)
	if err != nil {
		return out, err
	}
	cert, err := keyfile.ReadCertificate(filepath.Join(p.dir, peerLeaf+".crt"))
	if err != nil {
		return out, err
	}
	out.Replacing = len(roots) > 1
	for _, root := range roots {
		if cert != nil && cert.CheckSignatureFrom(root) == nil {
			out.Authority = HashOf(root)
			break
		}
	}
	for _, root := range p.opened {
		out.Outdated = out.Outdated || !slices.ContainsFunc(roots, root.Equal)
	}
	return out, nil
}

// FollowPeers issues a certificate of the authority that signs now, unless the server has one.
// It makes no authority: who removes that while the server runs brings another.
func FollowPeers(dir, host string, c clock.PassiveClock) error {
	unlock, err := lockDirectory(dir)
	if err != nil {
		return err
	}
	defer unlock()
	a, err := loadPeers(dir, c.Now())
	if err != nil || a == nil {
		return err
	}
	_, err = openPeers(dir, host, a, c)
	return err
}

// RotatePeers replaces the authority of the databases. The old one is trusted beside the new
// one until FinishPeers.
func RotatePeers(dir string, now time.Time) error {
	return changePeers(dir, now, func(a *authority) ([]step, error) { return planPeers(a, now) })
}

func planPeers(a *authority, now time.Time) ([]step, error) {
	steps, next, err := rotateAuthority(a, now)
	if err != nil {
		return nil, err
	}
	return append([]step{{write: peerCross, data: certificatesPEM(next.crosses)}}, steps...), nil
}

// FinishPeers ends the trust in the one that was replaced.
func FinishPeers(dir string, now time.Time) error {
	return changePeers(dir, now, func(a *authority) ([]step, error) {
		if len(a.previous) == 0 {
			return nil, fmt.Errorf("%s is not being replaced: there is nothing to finish", PeerAuthority)
		}
		return []step{{remove: previousFile("", PeerAuthority)}}, nil
	})
}

// changePeers does what plan wants, and has this server's certificate be of the authority
// that signs. A server that does not run would not start without.
func changePeers(dir string, now time.Time, plan func(*authority) ([]step, error)) error {
	if !exists(dir, PeerAuthority+".crt") {
		return errNoPeers
	}
	unlock, err := lockDirectory(dir)
	if err != nil {
		return err
	}
	defer unlock()
	a, err := loadPeers(dir, now)
	if err == nil && a == nil {
		err = errNoPeers
	}
	if err != nil {
		return err
	}
	steps, err := plan(a)
	if err != nil {
		return err
	}
	if err := reissuePeer(dir, a, now); err != nil {
		return err
	}
	if err := applyAll(dir, steps); err != nil {
		return err
	}
	if a, err = loadPeers(dir, now); err != nil {
		return err
	}
	return reissuePeer(dir, a, now)
}

// reissuePeer issues the certificate that is there again, if another authority signed it.
func reissuePeer(dir string, a *authority, now time.Time) error {
	p, err := readLeaf(dir, peerLeaf)
	if err != nil || p == nil {
		return err // the server makes it
	}
	if p.cert.CheckSignatureFrom(a.cert) != nil {
		signer := &Signer{authority: func() *authority { return a }, clock: fixedClock(now)}
		template := templateOf(p.cert)
		template.TTL = leafLifetime
		p.cert, err = signer.issue(&p.key.PublicKey, template)
		if err != nil {
			return err
		}
	}
	p.chain = a.chain()
	return p.write(dir, peerLeaf)
}

// ExportPeers reads the files that the databases of all servers have, by name.
func ExportPeers(dir string) (map[string][]byte, error) { return exportFiles(dir, sharedPeerFiles) }

// PeersWhole reports whether files hold all that a database needs.
func PeersWhole(files map[string][]byte) bool {
	return len(files[PeerAuthority+".crt"]) > 0 && len(files[PeerAuthority+".key"]) > 0
}

// CheckPeers says which of the files that the databases of all servers have cannot be used.
func CheckPeers(files map[string][]byte) error {
	if err := checkPair(PeerAuthority, files[PeerAuthority+".crt"], files[PeerAuthority+".key"]); err != nil {
		return err
	}
	for _, name := range []string{previousFile("", PeerAuthority), peerCross} {
		if data, there := files[name]; there {
			if _, err := keyfile.ParseCertificates(data); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// AdoptPeers puts them in the place of those of a server that may run, and issues its
// certificate again. Cut off at any moment, the directory is whole, and the next try goes on.
func AdoptPeers(dir, host string, files map[string][]byte, c clock.PassiveClock) error {
	if err := CheckPeers(files); err != nil {
		return fmt.Errorf(
			"replace the authority of the servers' databases in %s: that of the other server cannot be used: %w", dir, err,
		)
	}
	if err := goodBy(PeerAuthority, files[PeerAuthority+".crt"], c.Now()); err != nil {
		return fmt.Errorf("take the authority of the servers' databases from another server: %w", err)
	}
	unlock, err := lockDirectory(dir)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := loadPeers(dir, c.Now()); err != nil {
		return err
	}
	before, after := peerAdoption(dir, files)
	if err := applyAll(dir, before); err != nil {
		return err
	}
	a, err := loadPeers(dir, c.Now())
	if err != nil {
		return err
	}
	if _, err := openPeers(dir, host, a, c); err != nil {
		return err
	}
	if err := applyAll(dir, after); err != nil || len(after) == 0 {
		return err
	}
	if a, err = loadPeers(dir, c.Now()); err != nil {
		return err
	}
	_, err = openPeers(dir, host, a, c)
	return err
}

// peerAdoption is what has to be done before the certificate is issued, and after.
func peerAdoption(dir string, files map[string][]byte) (before, after []step) {
	for _, name := range []string{previousFile("", PeerAuthority), peerCross} {
		if data, there := files[name]; there {
			before = append(before, step{write: name, data: data})
		} else if exists(dir, name) {
			after = append(after, step{remove: name})
		}
	}
	cert, key := files[PeerAuthority+".crt"], files[PeerAuthority+".key"]
	if same(dir, PeerAuthority+".crt", cert) && same(dir, PeerAuthority+".key", key) {
		return before, after
	}
	if _, vouched := files[previousFile("", PeerAuthority)]; !vouched {
		before = append(before, step{remove: peerLeaf + ".crt"}) // nothing would vouch for it
	}
	return append(before, replacePair(PeerAuthority, cert, key)...), after
}

// InspectPeers shows what a server has for its
// database among others, for people to look at; nothing for one that is alone.
func InspectPeers(dir string) ([]Item, error) {
	if !exists(dir, PeerAuthority+".crt") {
		return nil, nil
	}
	unlock, err := lockDirectory(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	out := inspectAuthority(dir, PeerAuthority)
	authority, _ := keyfile.ReadCertificate(filepath.Join(dir, PeerAuthority+".crt"))
	out = append(out, inspectLeaf(dir, peerLeaf, authority))
	for _, ending := range []string{"-next.crt", "-next.key"} {
		if exists(dir, PeerAuthority+ending) {
			out = append(out, leftOver(PeerAuthority+ending))
		}
	}
	for i := range out {
		out[i].File = filepath.Join(filepath.Base(dir), out[i].File)
	}
	return out, nil
}
