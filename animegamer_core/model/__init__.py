"""The networks of a game: prompt, encoder, engine, decoder, and the sampler that runs the decoder."""
