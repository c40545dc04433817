"""The networks that play: prompt, encoder, engine, decoder, and the sampler that runs the decoder."""
