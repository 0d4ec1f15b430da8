package config

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	// defaultMaxPods is how many pods a node takes unless it is told otherwise.
	defaultMaxPods = 110
	// minLogSize is the least size in bytes at which logs are rotated: less would be nothing but rotating.
	minLogSize = 64 << 10
)

// reservable are the resources of which some can be kept from pods.
var reservable = []corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, ProcessIDs,
}

// ProcessIDs is the name by which processes and threads are reserved, as with a kubelet. Pods do not request them.
const ProcessIDs corev1.ResourceName = "pid"

// completeReserve checks what says how many pods there are, what is kept from them, and how long their logs get.
func (c *Config) completeReserve() error {
	if c.MaxPods == 0 {
		c.MaxPods = defaultMaxPods
	}
	if c.MaxPods < 0 {
		return fmt.Errorf("--max-pods %d: a node takes one pod at least", c.MaxPods)
	}
	c.Reserved = corev1.ResourceList{}
	for flag, list := range map[string]map[string]string{
		"--system-reserved": c.SystemReserved,
		"--kube-reserved":   c.KubeReserved,
	} {
		if err := c.reserve(flag, list); err != nil {
			return err
		}
	}
	return c.completeLogs()
}

// reserve adds what a flag keeps from pods.
func (c *Config) reserve(flag string, list map[string]string) error {
	for text, value := range list {
		name := corev1.ResourceName(text)
		if !slices.Contains(reservable, name) {
			return fmt.Errorf("%s: of %q nothing can be reserved; cpu, memory, ephemeral-storage and pid can", flag, name)
		}
		amount, err := resource.ParseQuantity(value)
		if err != nil || amount.Sign() < 0 {
			return fmt.Errorf("%s: %s=%s is not an amount, such as cpu=500m or memory=1Gi", flag, name, value)
		}
		amount.Add(c.Reserved[name])
		c.Reserved[name] = amount
	}
	return nil
}

func (c *Config) completeLogs() error {
	setDefault(&c.LogMaxSize, "10Mi")
	if c.LogMaxFiles == 0 {
		c.LogMaxFiles = 5
	}
	size, err := resource.ParseQuantity(c.LogMaxSize)
	if err != nil || size.Value() < minLogSize {
		return fmt.Errorf("--container-log-max-size %s is not a size of 64Ki or more, such as 10Mi", c.LogMaxSize)
	}
	c.LogMaxBytes = size.Value()
	if c.LogMaxFiles < 2 {
		return errors.New(
			"--container-log-max-files: a container has two files of logs at least, the one that is written and the one " +
				"before it",
		)
	}
	return nil
}
