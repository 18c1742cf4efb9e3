//go:build !honkerpg

package honkerpg

// inBubbles allows testing/synctest bubbles.
const inBubbles = false
