package config

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/everynode/everynode/internal/agent/eviction"
	"github.com/everynode/everynode/internal/agent/podadmission"
)

const defaultPort = 10250

// Complete checks the configuration and fills in defaults.
func (c Config) Complete() (Config, error) {
	if c.NodeName == "" {
		name, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("find the machine's host name, to name the node: %w", err)
		}
		c.NodeName = nameOf(name)
	}
	if msgs := validation.IsDNS1123Subdomain(c.NodeName); len(msgs) > 0 {
		return c, fmt.Errorf("node name %q: %s", c.NodeName, msgs[0])
	}
	switch {
	case c.Server == "":
		return c, errors.New("the agent needs the API server's URL; give it as --server https://HOST:PORT")
	case c.DataDir == "":
		return c, errors.New("the agent needs a data folder")
	}
	setDefault(&c.LogDir, "/var/log")
	setDefault(&c.MemoryDir, "/run/everynode")
	setDefault(&c.KubeletDir, "/var/lib/kubelet")
	setDefault(&c.RuntimeEndpoint, "unix:///run/containerd/containerd.sock")
	setDefault(&c.ClusterDomain, "cluster.local")
	setDefault(&c.ResolvConf, findResolvConf("/"))
	for _, text := range c.ClusterDNS {
		if _, err := netip.ParseAddr(text); err != nil {
			return c, fmt.Errorf("the address %q of the cluster's name server is not an IP address", text)
		}
	}
	if c.Port == 0 {
		c.Port = defaultPort
	}
	if err := c.completeRoom(); err != nil {
		return c, err
	}
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return c, fmt.Errorf("find the data folder %s: %w", c.DataDir, err)
	}
	c.DataDir = dir
	setDefault(&c.ManifestPath, filepath.Join(dir, "manifests"))
	return c, c.checkRemember()
}

// nameOf is the name of the node on the machine with that host name, which may have capitals; names of nodes have none.
func nameOf(hostname string) string { return strings.ToLower(strings.TrimSpace(hostname)) }

// completeRoom checks what says how much of the node pods may use.
func (c *Config) completeRoom() error {
	setDefault(&c.EvictionHard, eviction.Default)
	var err error
	texts := eviction.Texts{
		Hard:      c.EvictionHard,
		Soft:      c.EvictionSoft,
		SoftGrace: c.EvictionSoftGrace,
		Reclaim:   c.EvictionReclaim,
	}
	c.Rules, err = eviction.ParseRules(texts)
	if err != nil {
		return err
	}
	if c.EvictionMaxPodGrace < 0 || c.PressureTransition < 0 {
		return errors.New("--eviction-max-pod-grace-period and --eviction-pressure-transition-period cannot be negative")
	}
	if c.PressureTransition == 0 {
		c.PressureTransition = eviction.DefaultTransition
	}
	c.Rules.MaxPodGrace, c.Rules.Transition = c.EvictionMaxPodGrace, c.PressureTransition
	if c.ShutdownGraceCritical < 0 || c.ShutdownGraceCritical > c.ShutdownGrace {
		return fmt.Errorf("--shutdown-grace-period-critical-pods %s is not between 0 and --shutdown-grace-period %s",
			c.ShutdownGraceCritical, c.ShutdownGrace)
	}
	if err := errors.Join(podadmission.CheckSysctls(c.AllowedUnsafeSysctls), c.completeReserve()); err != nil {
		return err
	}
	return c.completeImages()
}

// completeImages checks what says which images are removed.
func (c *Config) completeImages() error {
	if c.ImageGCHigh == 0 {
		c.ImageGCHigh = 85
	}
	if c.ImageGCLow == 0 {
		c.ImageGCLow = min(80, c.ImageGCHigh)
	}
	if c.ImageMinAge < 0 || c.ImageMaxAge < 0 || c.ImageMaxAge > 0 && c.ImageMaxAge <= c.ImageMinAge {
		return fmt.Errorf(
			"--image-maximum-gc-age %s must be longer than --minimum-image-ttl-duration %s, or 0 for never; neither can be "+
				"negative",
			c.ImageMaxAge, c.ImageMinAge,
		)
	}
	if c.ImageMinAge == 0 {
		c.ImageMinAge = 2 * time.Minute
	}
	if c.ImageGCLow < 0 || c.ImageGCLow > c.ImageGCHigh || c.ImageGCHigh > 100 {
		return fmt.Errorf(
			"--image-gc-low-threshold %d and --image-gc-high-threshold %d: percentages are needed, the first not above the "+
				"second",
			c.ImageGCLow, c.ImageGCHigh,
		)
	}
	return nil
}

func setDefault(field *string, value string) {
	if *field == "" {
		*field = value
	}
}

// What Config.RememberSecrets may be besides a file with a key.
const (
	// RememberNoSecrets keeps Secrets in memory only.
	RememberNoSecrets = "none"
	// RememberPlain keeps Secrets on the disk as they are, for root only.
	RememberPlain = "plain"
)

// checkRemember reports whether what is said of secrets can be done, and makes the path of a key clean.
func (c *Config) checkRemember() error {
	setDefault(&c.RememberSecrets, RememberNoSecrets)
	if c.RememberSecrets == RememberNoSecrets || c.RememberSecrets == RememberPlain {
		return nil
	}
	if !filepath.IsAbs(c.RememberSecrets) {
		return fmt.Errorf(
			"--remember-secrets %q is none of %s, %s, and the absolute path of a file with a key",
			c.RememberSecrets, RememberNoSecrets, RememberPlain,
		)
	}
	c.RememberSecrets = filepath.Clean(c.RememberSecrets)
	if strings.HasPrefix(c.RememberSecrets, c.DataDir+"/") {
		return errors.New(
			"--remember-secrets names a key in the data folder, where it would protect nothing; keep it where a thief of the " +
				"disk does not find it, or say plain",
		)
	}
	return nil
}
