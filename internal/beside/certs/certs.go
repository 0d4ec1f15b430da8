// Package certs decides what certificates a webhook serves with, and by which authority the API server knows them. All
// of it is kept in one Secret that every replica reads. It is pure: time and chance are arguments.
//
// An authority is replaced in two moves, so that no replica ever serves what the API server does not trust yet: the
// next one is trusted for an hour before anything is signed by it, and the one before is trusted until it ends.
package certs

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"slices"
	"time"
)

const (
	authorityLife = 365 * 24 * time.Hour
	servingLife   = 90 * 24 * time.Hour
	// trustFirst is how long the next authority is trusted before anything is signed by it.
	trustFirst = time.Hour
	// skew is by how much a clock may be behind.
	skew = 5 * time.Minute
)

// What the Secret holds.
const (
	authority, authorityKey = "ca.crt", "ca.key"
	next, nextKey           = "next-ca.crt", "next-ca.key"
	previous                = "previous-ca.crt"
	serving, servingKey     = "tls.crt", "tls.key"
)

// Renew returns what the Secret is to hold, for a server of these names. It is what the Secret holds already while
// nothing is due. What cannot be read is an error, and stays as it is.
func Renew(have map[string][]byte, names []string, now time.Time, chance io.Reader) (map[string][]byte, error) {
	out := maps.Clone(have)
	if !begun(have) {
		// Whoever leaves may have written a mark before anything else was there.
		if out == nil {
			out = map[string][]byte{}
		}
		err := makeAuthority(out, authority, authorityKey, now, chance)
		if err != nil {
			return nil, err
		}
	}
	ca, err := readCertificate(out, authority)
	if err != nil {
		return nil, err
	}
	if old(ca, now) && out[next] == nil {
		err = makeAuthority(out, next, nextKey, now, chance)
		if err != nil {
			return nil, err
		}
	}
	if out[next] != nil {
		err = promote(out, now)
		if err != nil {
			return nil, err
		}
	}
	if out[previous] != nil {
		before, err := readCertificate(out, previous)
		if err != nil {
			return nil, err
		}
		if now.After(before.NotAfter) {
			delete(out, previous)
		}
	}
	return out, serve(out, names, now, chance)
}

// begun reports whether the Secret holds anything of ours.
func begun(have map[string][]byte) bool {
	return slices.ContainsFunc([]string{authority, authorityKey, next, nextKey, previous, serving, servingKey},
		func(name string) bool { return have[name] != nil })
}

// Trusted are the authorities that the API server is to trust, as PEM.
func Trusted(held map[string][]byte) []byte {
	return slices.Concat(held[authority], held[next], held[previous])
}

// Serving is the certificate to serve with.
func Serving(held map[string][]byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(held[serving], held[servingKey])
	if err != nil {
		return nil, fmt.Errorf("read the serving certificate: %w", err)
	}
	return &pair, nil
}

// Ends is when the serving certificate does.
func Ends(held map[string][]byte) (time.Time, error) {
	c, err := readCertificate(held, serving)
	if err != nil {
		return time.Time{}, err
	}
	return c.NotAfter, nil
}

// old reports whether two thirds of a certificate's life are over.
func old(c *x509.Certificate, now time.Time) bool {
	return now.After(c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) / 3 * 2))
}

// promote has the next authority sign from now on, if it has been trusted for long enough.
func promote(out map[string][]byte, now time.Time) error {
	c, err := readCertificate(out, next)
	if err != nil {
		return err
	}
	if now.Before(c.NotBefore.Add(skew + trustFirst)) {
		return nil
	}
	out[previous], out[authority], out[authorityKey] = out[authority], out[next], out[nextKey]
	delete(out, next)
	delete(out, nextKey)
	return nil
}

// serve renews the serving certificate if that is due.
func serve(out map[string][]byte, names []string, now time.Time, chance io.Reader) error {
	ca, err := readCertificate(out, authority)
	if err != nil {
		return err
	}
	if out[serving] != nil {
		c, err := readCertificate(out, serving)
		if err != nil {
			return err
		}
		if !old(c, now) && c.CheckSignatureFrom(ca) == nil && isFor(c, names) {
			return nil
		}
	}
	signer, err := readKey(out, authorityKey)
	if err != nil {
		return err
	}
	t := &x509.Certificate{
		Subject: pkix.Name{CommonName: names[0]}, NotBefore: now.Add(-skew), NotAfter: now.Add(servingLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, name)
		}
	}
	return sign(out, serving, servingKey, t, ca, signer, chance)
}

// isFor reports whether a certificate has all names.
func isFor(c *x509.Certificate, names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return c.VerifyHostname(name) != nil })
}

func makeAuthority(out map[string][]byte, name, keyName string, now time.Time, chance io.Reader) error {
	return sign(out, name, keyName, &x509.Certificate{
		Subject:   pkix.Name{CommonName: "everynode-webhook " + now.UTC().Format(time.DateOnly)},
		NotBefore: now.Add(-skew), NotAfter: now.Add(authorityLife), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}, nil, nil, chance)
}

// sign makes a key and a certificate for it, signed by an authority or, without one, by itself.
func sign(out map[string][]byte, name, keyName string, t, by *x509.Certificate, signer crypto.Signer,
	chance io.Reader) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), chance)
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	if by == nil {
		by, signer = t, key
	}
	number := make([]byte, 16)
	_, err = io.ReadFull(chance, number)
	if err != nil {
		return fmt.Errorf("make a serial number: %w", err)
	}
	number[0] &= 0x7f
	t.SerialNumber = new(big.Int).SetBytes(number)
	der, err := x509.CreateCertificate(chance, t, by, key.Public(), signer)
	if err != nil {
		return fmt.Errorf("sign %s: %w", name, err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("write the key of %s: %w", name, err)
	}
	out[name] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	out[keyName] = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
	return nil
}

func readCertificate(held map[string][]byte, name string) (*x509.Certificate, error) {
	block, rest := pem.Decode(held[name])
	if block == nil || len(bytes.TrimSpace(rest)) > 0 {
		return nil, fmt.Errorf("%s of the Secret is not one certificate; "+
			"restore it, or delete the Secret to have another made", name)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read %s of the Secret: %w", name, err)
	}
	return c, nil
}

func readKey(held map[string][]byte, name string) (crypto.Signer, error) {
	block, _ := pem.Decode(held[name])
	if block == nil {
		return nil, fmt.Errorf("%s of the Secret is no key", name)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read %s of the Secret: %w", name, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New(name + " of the Secret cannot sign")
	}
	return signer, nil
}
