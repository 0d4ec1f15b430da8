// Package config is what an agent is told: by flags, and by a file in a kubelet's words.
//
// Complete checks it and fills in the defaults; CheckMachine refuses machines that it says not to run on. Each part
// goes to the part of the agent that it is for.
package config
